package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/component-base/version"
)

// down stops the cluster; with purge it also deletes all data.
func (c *cluster) down(purge bool) error {
	if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := c.lock(); err != nil {
		return err
	}
	if err := c.stopAll(); err != nil {
		return err
	}
	if !purge {
		return nil
	}
	if err := c.removeData(); err != nil {
		return err
	}
	// Only files of this tool are deleted: --dir may name a directory with more.
	os.Remove(c.path("lock"))
	os.Remove(c.dir)
	return nil
}

// removeData deletes everything except the lock.
func (c *cluster) removeData() error {
	files := []string{"etcd", "logs", "certificates", "audit.log", "audit-policy.yaml", "kube-scheduler.yaml",
		"kwok.yaml", "ca.crt", "kube-apiserver.crt", "kube-apiserver.key", "service-accounts.key",
		"tokens.csv", "cluster.json"}
	for _, user := range users {
		files = append(files, user.file+".kubeconfig")
	}
	for _, file := range files {
		if err := os.RemoveAll(c.path(file)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) stopAll() error {
	for _, component := range slices.Backward(components) {
		if err := c.stopComponent(component); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) stopComponent(component component) error {
	if process, running := readProcess(c.pidFile(component)); running {
		if err := process.stop(component.patience); err != nil {
			return fmt.Errorf("cannot stop %s: %w", component.name, err)
		}
	}
	err := os.Remove(c.pidFile(component))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// control starts, stops or restarts one component of a cluster.
func (c *cluster) control(command, name string) error {
	component, err := componentNamed(name)
	if err != nil {
		return err
	}
	if err := c.mustExist(); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	if command != "start" {
		if err := c.stopComponent(component); err != nil {
			return err
		}
	}
	if command == "stop" {
		return nil
	}
	if _, running := readProcess(c.pidFile(component)); running {
		return nil
	}
	var watch watched
	if err := c.startComponent(component, &watch); err != nil {
		return err
	}
	if component.name == "kube-apiserver" || component.name == "etcd" {
		return c.waitFor("the API server is ready", "/readyz", &watch, time.Now().Add(startTimeout))
	}
	return nil
}

func (c *cluster) allRunning() bool {
	for _, component := range components {
		if _, running := readProcess(c.pidFile(component)); !running {
			return false
		}
	}
	return true
}

// status lists the components; it is an error if one is missing.
func (c *cluster) status() error {
	if err := c.mustExist(); err != nil {
		return err
	}
	fmt.Printf("%s: Kubernetes %s, %s\n", c.Name, kubernetesVersion(), c.server())
	for _, component := range components {
		state := "stopped"
		if process, running := readProcess(c.pidFile(component)); running {
			state = fmt.Sprintf("running, process %d", process.pid)
		}
		fmt.Printf("  %-24s %s\n", component.name, state)
	}
	if !c.allRunning() {
		return errors.New("not all components are running")
	}
	api, err := c.api()
	if err != nil {
		return err
	}
	if status, err := api.do(http.MethodGet, "/readyz"); err != nil || status != http.StatusOK {
		return fmt.Errorf("the API server is not ready (answer: %d, %v)", status, err)
	}
	return nil
}

func kubernetesVersion() string { return version.Get().GitVersion }
