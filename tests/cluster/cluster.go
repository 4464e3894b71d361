package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// cluster is one control plane: a directory, and the settings in its cluster.json.
type cluster struct {
	dir string
	// settings is empty before the first start.
	settings
}

// settings are the options of a start that later commands need.
type settings struct {
	Name string `json:"name"`
	// Port of the API server; the next two belong to etcd, for clients and for other members.
	Port           int      `json:"port"`
	EtcdPort       int      `json:"etcdPort"`
	EtcdPeerPort   int      `json:"etcdPeerPort"`
	AuditReads     bool     `json:"auditReads,omitempty"`
	PodGroups      bool     `json:"podGroups,omitempty"`
	APIServerFlags []string `json:"apiserverFlags,omitempty"`
}

func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *cluster) kubeconfig(user string) string { return c.path(user + ".kubeconfig") }

func (c *cluster) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.Port) }

func defaultDir(name string) string {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, _ := os.UserHomeDir()
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "sluice", "cluster-"+name)
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// openCluster reads the settings of a cluster, which need not exist yet.
func openCluster(name, dir string) (*cluster, error) {
	if !validName.MatchString(name) {
		return nil, usageError{fmt.Errorf("--name %q: use lower-case letters, digits, - and .", name)}
	}
	if dir == "" {
		dir = defaultDir(name)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, settings: settings{Name: name}}
	data, err := os.ReadFile(c.path("cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &c.settings); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path("cluster.json"), err)
	}
	return c, nil
}

func (c *cluster) saveSettings() error {
	data, err := json.MarshalIndent(c.settings, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.path("cluster.json"), data)
}

// exists reports whether the cluster was ever started.
func (c *cluster) exists() bool { return c.Port != 0 }

func (c *cluster) mustExist() error {
	if c.exists() {
		return nil
	}
	return fmt.Errorf("there is no cluster in %s; start one with `sluice-cluster up`", c.dir)
}

// lock makes other commands on the same cluster wait until this one has ended.
func (c *cluster) lock() error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	// Held until the process ends: the file stays open on purpose.
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
}

const (
	defaultPort = 16443
	unsetPort   = -1
)

// choosePorts chooses the ports. A port named by the caller must be free; the ports of an earlier run and the
// default are replaced when they are in use.
func (c *cluster) choosePorts(wanted int) error {
	base := wanted
	switch {
	case wanted > 0:
		if wanted > 65533 {
			return usageError{fmt.Errorf("--port %d: must be at most 65533", wanted)}
		}
		if port := takenPort(wanted, wanted+1, wanted+2); port != 0 {
			return fmt.Errorf("port %d is in use; choose another --port, or 0 for free ones", port)
		}
	case wanted == unsetPort && c.exists() && takenPort(c.Port, c.EtcdPort, c.EtcdPeerPort) == 0:
		return nil
	case wanted == unsetPort && takenPort(defaultPort, defaultPort+1, defaultPort+2) == 0:
		base = defaultPort
	default:
		ports, err := freePorts(3)
		if err != nil {
			return err
		}
		c.Port, c.EtcdPort, c.EtcdPeerPort = ports[0], ports[1], ports[2]
		return nil
	}
	c.Port, c.EtcdPort, c.EtcdPeerPort = base, base+1, base+2
	return nil
}

func takenPort(ports ...int) int {
	for _, port := range ports {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return port
		}
		listener.Close()
	}
	return 0
}

func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // closed at the end, so that all ports differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// writeFile replaces a file as a whole, readable by its owner only.
func writeFile(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func (c *cluster) printEnv() error {
	if err := c.mustExist(); err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\n", shellQuote(c.kubeconfig("admin")))
	return nil
}

func (c *cluster) printKubeconfig(user string) error {
	if err := c.mustExist(); err != nil {
		return err
	}
	if user == "" {
		user = "admin"
	}
	if _, err := os.Stat(c.kubeconfig(user)); err != nil {
		return usageError{fmt.Errorf("no kubeconfig for user %q in %s", user, c.dir)}
	}
	fmt.Println(c.kubeconfig(user))
	return nil
}

func shellQuote(s string) string {
	if regexp.MustCompile(`^[-\w./+@:]+$`).MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
