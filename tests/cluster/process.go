package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running program: its id and its start time. The id alone could have been reused.
type process struct {
	pid   int
	birth string
}

// spawn starts a program that outlives this one. Its output is appended to log, and its identity is written
// to pidFile. The channel is closed when it has ended.
func spawn(argv []string, log, pidFile string) (<-chan struct{}, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	command := exec.Command(argv[0], argv[1:]...)
	command.Dir = "/"
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		command.Wait()
		close(ended)
	}()
	pid := command.Process.Pid
	return ended, writeFile(pidFile, fmt.Appendf(nil, "%d %s\n", pid, birthOf(pid)))
}

// readProcess returns the process of a pid file if it still runs.
func readProcess(pidFile string) (process, bool) {
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return process{}, false
	}
	number, birth, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return process{}, false
	}
	p := process{pid, birth}
	return p, p.running()
}

func (p process) running() bool { return p.birth != "" && birthOf(p.pid) == p.birth }

// birthOf returns the start time of a process in no particular format. It is empty for a missing process, and
// for a zombie.
func birthOf(pid int) string {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// The fields follow the program's name in parentheses: the state is the first, the start time the
		// twentieth.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
			return ""
		}
		return fields[19]
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return ""
	}
	output, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	state, birth, _ := strings.Cut(strings.TrimSpace(string(output)), " ")
	if err != nil || strings.HasPrefix(state, "Z") {
		return ""
	}
	return strings.TrimSpace(birth)
}

// stop sends SIGTERM, and SIGKILL after patience. It returns once the process is gone and its ports are free.
func (p process) stop(patience time.Duration) error {
	if !p.running() {
		return nil
	}
	syscall.Kill(p.pid, syscall.SIGTERM)
	if p.wait(patience) {
		return nil
	}
	syscall.Kill(p.pid, syscall.SIGKILL)
	if p.wait(10 * time.Second) {
		return nil
	}
	return fmt.Errorf("process %d does not end, even after SIGKILL", p.pid)
}

func (p process) wait(patience time.Duration) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !p.running() {
			return true
		}
	}
	return !p.running()
}
