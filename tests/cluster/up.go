package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type upOptions struct {
	port           int
	fresh          bool
	auditReads     bool
	podGroups      bool
	apiserverFlags []string
}

// startTimeout allows for a busy machine; an idle one needs some seconds.
const startTimeout = 2 * time.Minute

// up brings the cluster into the running state from any other state.
func (c *cluster) up(options upOptions) error {
	if err := c.lock(); err != nil {
		return err
	}
	if !options.fresh && c.allRunning() {
		if err := c.refuseChange(options); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "the cluster is running already\n")
		return c.printUsage()
	}
	if err := c.stopAll(); err != nil { // leftovers of a crash
		return err
	}
	if options.fresh {
		if err := c.removeData(); err != nil {
			return err
		}
	}
	if err := c.choosePorts(options.port); err != nil {
		return err
	}
	c.AuditReads, c.PodGroups, c.APIServerFlags = options.auditReads, options.podGroups, options.apiserverFlags

	began := time.Now()
	for _, prepare := range []func() error{c.makeCredentials, c.writeConfigs, c.saveSettings, c.clearLogs} {
		if err := prepare(); err != nil {
			return err
		}
	}
	if err := c.startAll(); err != nil {
		return errors.Join(err, c.stopAll())
	}
	fmt.Fprintf(os.Stderr, "Kubernetes %s is ready after %.1f s, its logs are in %s\n",
		kubernetesVersion(), time.Since(began).Seconds(), c.path("logs"))
	return c.printUsage()
}

func (c *cluster) printUsage() error {
	fmt.Fprintf(os.Stderr, "API server: %s\n", c.server())
	return c.printEnv()
}

// refuseChange keeps `up` from silently ignoring options on a running cluster.
func (c *cluster) refuseChange(options upOptions) error {
	switch {
	case options.port > 0 && options.port != c.Port:
		return fmt.Errorf("the cluster is running on port %d; stop it with `sluice-cluster down` first", c.Port)
	case len(options.apiserverFlags) > 0 && !slices.Equal(options.apiserverFlags, c.APIServerFlags),
		options.auditReads && !c.AuditReads, options.podGroups && !c.PodGroups:
		return errors.New("the cluster is running with other flags; stop it with `sluice-cluster down` first")
	}
	return nil
}

// startAll starts every component and waits until the cluster is usable.
func (c *cluster) startAll() error {
	var watch watched
	deadline := time.Now().Add(startTimeout)
	for _, component := range components {
		if err := c.startComponent(component, &watch); err != nil {
			return err
		}
		if component.name == "kube-apiserver" {
			if err := c.waitFor("the API server is ready", "/readyz", &watch, deadline); err != nil {
				return err
			}
		}
	}
	// kube-controller-manager creates it first, and pods need it.
	return c.waitFor("the default service account exists", defaultAccount, &watch, deadline)
}

const defaultAccount = "/api/v1/namespaces/default/serviceaccounts/default"

func (c *cluster) startComponent(component component, watch *watched) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if component.name == "kwok" {
		if err := c.forgetNodeLeases(); err != nil {
			return err
		}
	}
	ended, err := spawn(component.argv(c, self), c.logFile(component), c.pidFile(component))
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", component.name, err)
	}
	*watch = append(*watch, watchedComponent{component, ended})
	return nil
}

// forgetNodeLeases lets a new kwok manage the nodes of the last one at once. Each run has an identity of its
// own, and would respect the other's leases until they expire.
func (c *cluster) forgetNodeLeases() error {
	api, err := c.api()
	if err != nil {
		return err
	}
	status, err := api.do(http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
	if err != nil {
		return fmt.Errorf("cannot release the nodes: %w", err)
	}
	if status != http.StatusOK && status != http.StatusNotFound {
		return fmt.Errorf("cannot release the nodes: the API server answers %d", status)
	}
	return nil
}

// watched are the components started by this process, which sees them end.
type watched []watchedComponent

type watchedComponent struct {
	component
	ended <-chan struct{}
}

func (w watched) dead() (component, bool) {
	for _, one := range w {
		select {
		case <-one.ended:
			return one.component, true
		default:
		}
	}
	return component{}, false
}

// waitFor polls until the API server answers path with 200.
func (c *cluster) waitFor(what, path string, watch *watched, deadline time.Time) error {
	api, err := c.api()
	if err != nil {
		return err
	}
	for ; ; time.Sleep(30 * time.Millisecond) {
		status, err := api.do(http.MethodGet, path)
		if err == nil && status == http.StatusOK {
			// If another process had answered on our port, ours would have ended.
			if component, dead := watch.dead(); dead {
				return c.deathOf(component)
			}
			return nil
		}
		if component, dead := watch.dead(); dead {
			return c.deathOf(component)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up waiting until %s (last answer: %d, %v); see the logs in %s",
				what, status, err, c.path("logs"))
		}
	}
}

func (c *cluster) deathOf(component component) error {
	const lines = 15
	log, _ := os.ReadFile(c.logFile(component))
	tail := strings.Split(strings.TrimSpace(string(log)), "\n")
	tail = tail[max(0, len(tail)-lines):]
	return fmt.Errorf("%s ended while the cluster was starting. The end of %s:\n  %s",
		component.name, c.logFile(component), strings.Join(tail, "\n  "))
}

// api is a client of the API server, as admin.
type api struct {
	client http.Client
	server string
	token  string
}

func (c *cluster) api() (*api, error) {
	authority, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	tokens, err := c.readTokens()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &api{
		client: http.Client{
			Timeout:   5 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		},
		server: c.server(),
		token:  tokens["admin"],
	}, nil
}

func (a *api) do(method, path string) (status int, err error) {
	request, err := http.NewRequest(method, a.server+path, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}

func (c *cluster) logFile(component component) string { return c.path("logs", component.name+".log") }
func (c *cluster) pidFile(component component) string { return c.path(component.name + ".pid") }

func (c *cluster) clearLogs() error {
	logs, err := filepath.Glob(c.path("logs", "*.log"))
	if err != nil {
		return err
	}
	for _, log := range append(logs, c.path("audit.log")) {
		if err := os.RemoveAll(log); err != nil {
			return err
		}
	}
	return nil
}
