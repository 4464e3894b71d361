//! People with credentials of their own: client certificates and tokens.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::Kubeconfig;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::{Cluster, User};

/// An authority for client certificates, in a folder that the API server reads.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    key: KeyPair,
    params: CertificateParams,
}

impl Authority {
    /// A new authority with its files in this folder.
    pub fn new(folder: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "people");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        std::fs::write(folder.join("ca.crt"), params.clone().self_signed(&key)?.pem())?;
        Ok(Self { folder: folder.to_owned(), key, params })
    }

    /// The flag of the API server that makes it trust these certificates.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--client-ca-file={}", self.folder.join("ca.crt").display())
    }

    /// The credential of a user of this name, as fields of a kubeconfig.
    pub fn credential(&self, name: &str) -> Result<String> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let issuer = Issuer::from_params(&self.params, &self.key);
        let [certificate, key_file] = ["crt", "key"].map(|end| self.folder.join(format!("{name}.{end}")));
        std::fs::write(&certificate, params.signed_by(&key, &issuer)?.pem())?;
        std::fs::write(&key_file, key.serialize_pem())?;
        Ok(format!("client-certificate: {}, client-key: {}", certificate.display(), key_file.display()))
    }
}

impl Cluster {
    /// A kubeconfig of this credential, with this namespace in its context. The file has the name of the user.
    pub fn kubeconfig_of(&self, name: &str, credential: &str, namespace: &str) -> Result<PathBuf> {
        let admin = Kubeconfig::read_from(self.kubeconfig(User::Admin))?;
        let cluster = admin.clusters.first().and_then(|named| named.cluster.as_ref()).context("a cluster")?;
        let cluster = serde_json::to_string(cluster)?;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters: [{{name: gpus, cluster: {cluster}}}]\n\
             users: [{{name: {name}, user: {{{credential}}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: gpus, user: {name}, namespace: {namespace}}}}}]\n"
        );
        let path = self.scratch()?.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, text)?;
        Ok(path)
    }
}
