package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// user is an account of the API server with a token of its own.
type user struct {
	// file names the kubeconfig: file.kubeconfig.
	file   string
	name   string
	groups []string
}

// users of every cluster. The benchmarks distinguish them in the audit log.
var users = []user{
	{"admin", "admin", []string{"system:masters"}},
	{"raw", "load-generator", []string{"system:masters"}},
	{"kwok", "kwok", []string{"system:masters"}},
	{"kube-controller-manager", "system:kube-controller-manager", nil},
	{"kube-scheduler", "system:kube-scheduler", nil},
	// Has no rights until they are granted.
	{"alice", "alice", []string{"developers"}},
	// Sluice's account when it is deployed: its ServiceAccount.
	{"sluice", "system:serviceaccount:sluice-system:sluice",
		[]string{"system:serviceaccounts", "system:serviceaccounts:sluice-system"}},
}

// makeCredentials creates keys, certificates and tokens once per cluster, and kubeconfigs, which hold the
// port, at each start.
func (c *cluster) makeCredentials() error {
	if _, err := os.Stat(c.path("tokens.csv")); err != nil {
		if err := c.makeKeys(); err != nil {
			return err
		}
		if err := c.makeTokens(); err != nil { // last: marks the set as complete
			return err
		}
	}
	tokens, err := c.readTokens()
	if err != nil {
		return err
	}
	for _, user := range users {
		if err := c.writeKubeconfig(user, tokens[user.name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) makeKeys() error {
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := c.writeKey("service-accounts.key", accountKey); err != nil {
		return err
	}

	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authority := certificate("sluice-cluster "+c.Name, 1)
	authority.IsCA = true
	authority.BasicConstraintsValid = true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := c.writeCertificate("ca.crt", authority, authority, authorityKey, authorityKey); err != nil {
		return err
	}

	servingKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := c.writeKey("kube-apiserver.key", servingKey); err != nil {
		return err
	}
	serving := certificate("kube-apiserver", 2)
	serving.KeyUsage = x509.KeyUsageDigitalSignature
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	return c.writeCertificate("kube-apiserver.crt", serving, authority, servingKey, authorityKey)
}

func certificate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0),
	}
}

func (c *cluster) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(c.path(file), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (c *cluster) writeCertificate(file string, of, by *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	return writeFile(c.path(file), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// makeTokens writes the file of users for kube-apiserver: token,name,uid,"groups".
func (c *cluster) makeTokens() error {
	var lines strings.Builder
	for _, user := range users {
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", rand.Text(), user.name, user.file, strings.Join(user.groups, ","))
	}
	return writeFile(c.path("tokens.csv"), []byte(lines.String()))
}

func (c *cluster) readTokens() (map[string]string, error) {
	data, err := os.ReadFile(c.path("tokens.csv"))
	if err != nil {
		return nil, err
	}
	tokens := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.SplitN(line, ",", 3); len(fields) == 3 {
			tokens[fields[1]] = fields[0]
		}
	}
	return tokens, nil
}

func (c *cluster) writeKubeconfig(user user, token string) error {
	authority, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return err
	}
	type object = map[string]any
	context := user.file + "@" + c.Name
	config, err := json.MarshalIndent(object{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []object{{"name": c.Name, "cluster": object{
			"server":                     c.server(),
			"certificate-authority-data": base64.StdEncoding.EncodeToString(authority),
		}}},
		"users":           []object{{"name": context, "user": object{"token": token}}},
		"contexts":        []object{{"name": context, "context": object{"cluster": c.Name, "user": context}}},
		"current-context": context,
	}, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.kubeconfig(user.file), config)
}
