// SPDX-License-Identifier: Apache-2.0
//! The entry point of a node's container (docs/formats.md §5): waits for the interfaces that Containerlab gives it,
//! prepares them, starts the node's kernel (ours as a process, or an agent on the host's), and stands between its gate
//! and the clients of `control.sock`. Whatever it started ends with it.

use crate::container::relay::{lines, Client, Relay};
use crate::failure::{Failure, Of, Result};
use crate::machine;
use crate::plan::place::{Place, Start};
use crate::plan::{End, Plan};
use crate::results::files::{self, NODE};
use crate::scope::Scope;
use nix::mount::{mount, MsFlags};
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::signal::{killpg, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const TOOLCHAIN: &str = "/opt/qbed";
const SOCKET: &str = "/qbed/control.sock";
/// That all nodes of a lab share, where nobody gives the word: the origin of their time.
const SHARED_ORIGIN: &str = "/qbed-lab/origin";
/// The child's end of the gate, as in virtual time.
const GATE: i32 = 200;
const INTERFACES_EVERY_MS: u8 = 10;
/// A client that takes nothing for so long is left.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);
const CONSOLE_LINES: usize = 4;
const NICE: i32 = -10;
const VIRTUAL_EPOCH_NS: u64 = 1_577_836_800_000_000_000;

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
const CHILD: u64 = 2;
/// Clients have this number and above.
const CLIENTS: u64 = 16;

pub fn main() -> ExitCode {
    files::are_in(NODE);
    match Supervisor::new().and_then(Supervisor::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("qbed-agent: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preparing,
    Waiting,
    Running,
    Ended,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ended => "ended",
        }
    }
}

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
}

/// The node's kernel, or the agent on the host's.
struct Child {
    pid: Pid,
    gate: UnixStream,
    received: Vec<u8>,
    begun: Instant,
    used_before: Used,
}

/// Since the machine or the process began, in ns.
#[derive(Clone, Copy)]
struct Used {
    cpu_ns: u64,
    steal_ns: u64,
}

struct Supervisor {
    plan: Plan,
    place: Place,
    epoll: Epoll,
    listener: UnixListener,
    signals: SignalFd,
    clients: BTreeMap<Client, Connection>,
    next_client: Client,
    relay: Relay,
    child: Option<Child>,
    state: State,
    error: Option<String>,
}

impl Supervisor {
    fn new() -> Result<Self> {
        let (plan, place) = read()?;
        let _ = fs::remove_file(SOCKET);
        let listener = UnixListener::bind(SOCKET).of(|| SOCKET.into())?;
        listener.set_nonblocking(true).of(|| SOCKET.into())?;
        let mut mask = SigSet::empty();
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().for_each(|signal| mask.add(signal));
        mask.thread_block().of(|| "signals".into())?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).of(|| "signals".into())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).of(|| "epoll".into())?;
        let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
        epoll.add(&listener, readable(LISTENER)).of(|| SOCKET.into())?;
        epoll.add(&signals, readable(SIGNALS)).of(|| "signals".into())?;
        Ok(Self {
            plan,
            place,
            epoll,
            listener,
            signals,
            clients: BTreeMap::new(),
            next_client: CLIENTS,
            relay: Relay::default(),
            child: None,
            state: State::Preparing,
            error: None,
        })
    }

    /// Serves until it is told to end.
    fn run(mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); 32];
        loop {
            if self.state == State::Preparing && self.interfaces_are_there() {
                self.prepare()?;
            }
            let timeout = match self.state {
                State::Preparing => EpollTimeout::from(INTERFACES_EVERY_MS),
                _ => EpollTimeout::NONE,
            };
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(nix::errno::Errno::EINTR) => 0,
                result => result.of(|| "epoll".into())?,
            };
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept()?,
                    SIGNALS => {
                        if self.on_signal()? {
                            self.kill_child();
                            let _ = fs::remove_file(SOCKET);
                            return Ok(());
                        }
                    }
                    CHILD => {
                        self.on_gate();
                    }
                    client => self.on_client(client)?,
                }
            }
        }
    }

    fn ends(&self) -> impl Iterator<Item = (&End, u32)> {
        let ends = self.plan.links.iter().flat_map(|link| link.ends().map(|end| (end, link.mtu)));
        ends.filter(|(end, _)| end.node == self.place.node)
    }

    fn is_native(&self) -> bool {
        Scope::new(&self.plan, Some(&self.place)).on_host_kernel()
    }

    fn interfaces_are_there(&self) -> bool {
        self.ends().all(|(end, _)| Path::new("/sys/class/net").join(&end.interface).exists())
    }

    fn prepare(&mut self) -> Result<()> {
        let ends: Vec<(String, u32)> = self.ends().map(|(end, mtu)| (end.interface.clone(), mtu)).collect();
        let guest = !self.is_native();
        for (interface, mtu) in ends {
            prepare_interface(&interface, mtu, guest)?;
        }
        if guest {
            // Docker's own is 64 MB; a guest's memory is a file there.
            let size = format!("size={}", self.place.memory_bytes + (16 << 20));
            let mounted =
                mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some(size.as_str()));
            mounted.of(|| "mounting /dev/shm (is the container privileged?)".into())?;
        }
        self.enter(State::Waiting, None);
        if self.place.start == Start::AtOnce {
            self.go("lab", shared_origin(monotonic_ns()?)?);
        }
        Ok(())
    }

    fn enter(&mut self, state: State, error: Option<String>) {
        self.state = state;
        self.error = error;
        self.broadcast(&self.hello());
    }

    fn hello(&self) -> Value {
        let node = &self.plan.nodes[self.place.node].name;
        json!({"event": "hello", "node": node, "state": self.state.name(), "error": self.error})
    }

    // --- clients

    fn accept(&mut self) -> Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).of(|| SOCKET.into()),
        };
        let number = self.next_client;
        self.next_client += 1;
        stream.set_write_timeout(Some(CLIENT_PATIENCE)).of(|| SOCKET.into())?;
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, number)).of(|| SOCKET.into())?;
        self.clients.insert(number, Connection { stream, received: Vec::new() });
        self.send(number, &self.hello());
        Ok(())
    }

    fn send(&mut self, client: Client, event: &Value) {
        let Some(connection) = self.clients.get_mut(&client) else { return };
        let line = format!("{event}\n");
        if connection.stream.write_all(line.as_bytes()).is_err() {
            self.part(client);
        }
    }

    /// A client that has gone takes along what it has running.
    fn part(&mut self, client: Client) {
        self.clients.remove(&client);
        for id in self.relay.left(client) {
            if let Some(child) = &mut self.child {
                let _ = writeln!(child.gate, "{}", json!({"command": "end", "id": id}));
            }
        }
    }

    fn broadcast(&mut self, event: &Value) {
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.send(client, event);
        }
    }

    fn on_client(&mut self, client: Client) -> Result<()> {
        let Some(connection) = self.clients.get_mut(&client) else { return Ok(()) };
        let mut piece = [0; 1 << 16];
        match connection.stream.read(&mut piece) {
            Ok(length) if length > 0 => connection.received.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            _ => {
                self.part(client);
                return Ok(());
            }
        }
        for line in lines(&mut connection.received) {
            if let Err(error) = self.command(client, &line) {
                self.send(client, &json!({"event": "error", "error": error}));
            }
        }
        Ok(())
    }

    fn command(&mut self, client: Client, line: &[u8]) -> std::result::Result<(), String> {
        let command: Value =
            serde_json::from_slice(line).map_err(|error| format!("not a command: {error}"))?;
        if command["command"] == "go" {
            let origin_ns = command["origin_ns"].as_i64().ok_or("go needs origin_ns")?;
            let mode = command["mode"].as_str().filter(|mode| ["cell", "lab"].contains(mode));
            let mode = mode.ok_or("the mode of go is cell or lab")?;
            if !matches!(self.state, State::Waiting | State::Ended) {
                return Err(format!("the node is {}, not waiting", self.state.name()));
            }
            self.go(mode, origin_ns);
            return Ok(());
        }
        let command = self.relay.command(client, command)?;
        let child =
            self.child.as_mut().ok_or_else(|| format!("the node is {}, not running", self.state.name()))?;
        writeln!(child.gate, "{command}").map_err(|error| format!("the node does not answer: {error}"))
    }

    // --- the node

    /// Starts the node; if that fails, its state says so.
    fn go(&mut self, mode: &str, origin_ns: i64) {
        match self.start(mode, origin_ns) {
            Ok(child) => {
                self.child = Some(child);
                self.enter(State::Running, None);
            }
            Err(failure) => self.enter(State::Ended, Some(failure.to_string())),
        }
    }

    fn start(&mut self, mode: &str, origin_ns: i64) -> Result<Child> {
        (self.plan, self.place) = read()?;
        for name in ["out", "uml"] {
            let _ = fs::remove_dir_all(Path::new(NODE).join(name));
        }
        fs::create_dir_all(Path::new(NODE).join("out")).of(|| "out".into())?;
        let console = File::create(Path::new(NODE).join("console.log")).of(|| "console.log".into())?;
        let (gate, theirs) = UnixStream::pair().of(|| "gate".into())?;
        gate.set_write_timeout(Some(CLIENT_PATIENCE)).of(|| "gate".into())?;
        let native = self.is_native();
        let mut command = if native {
            let mut command = Command::new(format!("{TOOLCHAIN}/qbed-agent"));
            command.args(["native", mode, &origin_ns.to_string()]).env("QBED_GATE", GATE.to_string());
            command
        } else {
            self.guest(mode, origin_ns)
        };
        command.stdin(Stdio::null()).stderr(console.try_clone().of(|| "console.log".into())?).stdout(console);
        command.current_dir(NODE).process_group(0);
        let (descriptor, core) = (theirs.as_raw_fd(), self.core().filter(|_| !native));
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                SigSet::empty().thread_set_mask()?;
                if libc::dup2(descriptor, GATE) < 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0
                {
                    return Err(std::io::Error::last_os_error());
                }
                // By default Linux lets a timeout be 50 us late, to save power.
                let _ = libc::prctl(libc::PR_SET_TIMERSLACK, 1);
                // Other work of the machine makes deadlines late; not every container may say so.
                let _ = libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
                // A guest on two cores is ten times slower: kernel and processes hand over to each other all the time.
                core.map_or(Ok(()), |core| Ok(sched_setaffinity(Pid::from_raw(0), &core)?))
            });
        }
        let used_before = used();
        let child = command.spawn().of(|| "starting the node".into())?;
        self.epoll.add(&gate, EpollEvent::new(EpollFlags::EPOLLIN, CHILD)).of(|| "gate".into())?;
        let pid = Pid::from_raw(child.id() as i32);
        Ok(Child { pid, gate, received: Vec::new(), begun: Instant::now(), used_before })
    }

    /// Nodes are spread over the cores that the container may use.
    fn core(&self) -> Option<CpuSet> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        let mut one = CpuSet::new();
        one.set(*cores.get(self.place.node % cores.len().max(1))?).ok()?;
        Some(one)
    }

    fn guest(&self, mode: &str, origin_ns: i64) -> Command {
        let mut command = Command::new(format!("{TOOLCHAIN}/linux"));
        command.env_clear().env("PATH", machine::PATH).env("TMPDIR", "/dev/shm");
        command.arg(format!("mem={}M", self.place.memory_bytes >> 20));
        command.args([
            "rootfstype=hostfs",
            "root=none",
            "rootflags=/",
            "ro",
            "hostfs_rw=.",
            "uml_dir=.",
            "umid=uml",
        ]);
        command.arg(format!("init={TOOLCHAIN}/qbed-agent"));
        command.args(["time-travel=inf-cpu", &format!("time-travel-start={VIRTUAL_EPOCH_NS}")]);
        command.arg(format!("wall-clock={origin_ns}:{}", self.place.dilation));
        command.arg("seccomp=auto");
        // Nodes draw apart: what one draws is nothing to another.
        command.arg(format!("seed={}", self.plan.seed.wrapping_add(self.place.node as u64)));
        for (number, (end, mtu)) in self.ends().enumerate() {
            command
                .arg(format!("vec{number}:transport=raw,ifname={},depth=64,gro=0,mtu={mtu}", end.interface));
        }
        command.args(["con=null", "con0=null,fd:1", "quiet", &format!("qgate={GATE}")]);
        command.args([&format!("QBED_MODULES={TOOLCHAIN}/modules"), "--", mode]);
        command
    }

    /// Returns whether there may be more.
    fn on_gate(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        let mut piece = [0; 1 << 16];
        match child.gate.read(&mut piece) {
            Ok(length) if length > 0 => child.received.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            // The end of the stream: SIGCHLD tells the rest.
            _ => {
                let _ = self.epoll.delete(&child.gate);
                return false;
            }
        }
        for line in lines(&mut child.received) {
            let Ok(event) = serde_json::from_slice(&line) else { continue };
            match self.relay.event(event) {
                (Some(client), event) => self.send(client, &event),
                (None, event) => self.broadcast(&event),
            }
        }
        true
    }

    /// Returns whether to end.
    fn on_signal(&mut self) -> Result<bool> {
        let mut end = false;
        while let Some(signal) = self.signals.read_signal().of(|| "signals".into())? {
            end |= signal.ssi_signo != Signal::SIGCHLD as u32;
        }
        // As process 1 it also buries orphans.
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return Ok(end),
                Ok(status) => {
                    if status.pid().is_some() && status.pid() == self.child.as_ref().map(|child| child.pid) {
                        self.on_end();
                    }
                }
            }
        }
    }

    fn on_end(&mut self) {
        if let Some(child) = &self.child {
            // A guest's processes are in its group. Whoever lives on may hold its end of the gate: that is not waited for.
            let _ = killpg(child.pid, Signal::SIGKILL);
            let _ = child.gate.set_nonblocking(true);
        }
        while self.on_gate() {}
        let Some(child) = self.child.take() else { return };
        let _ = fs::remove_dir_all(Path::new(NODE).join("uml"));
        let mut error = self.failure();
        if let Err(failure) = self.write_evidence(&child) {
            error.get_or_insert(failure.to_string());
        }
        self.enter(State::Ended, error);
    }

    /// What went wrong with the node that has ended.
    fn failure(&self) -> Option<String> {
        let done = fs::read_to_string(Path::new(NODE).join("out/done.json")).ok();
        let done: Option<Value> = done.and_then(|text| serde_json::from_str(&text).ok());
        match done {
            Some(done) if done["status"] == "complete" => None,
            Some(done) => Some(done["error"].as_str().unwrap_or("failed").to_owned()),
            None => {
                let console = fs::read(Path::new(NODE).join("console.log")).unwrap_or_default();
                let console = String::from_utf8_lossy(&console);
                let said: Vec<&str> = console
                    .lines()
                    .rev()
                    .filter(|line| !line.trim().is_empty())
                    .take(CONSOLE_LINES)
                    .collect();
                let said: Vec<&str> = said.into_iter().rev().map(str::trim).collect();
                Some(format!("the node ended without a result; its console said last: {}", said.join(" | ")))
            }
        }
    }

    fn kill_child(&mut self) {
        if let Some(child) = self.child.take() {
            let _ = killpg(child.pid, Signal::SIGKILL);
            let _ = waitpid(child.pid, None);
        }
    }

    /// `out/host.json`
    fn write_evidence(&self, child: &Child) -> Result<()> {
        let used = used();
        let late = fs::read_to_string(Path::new(NODE).join("out/late.json")).ok();
        let late: Value = late.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
        let interfaces: serde_json::Map<String, Value> =
            self.ends().map(|(end, _)| (end.interface.clone(), interface_counters(&end.interface))).collect();
        let evidence = json!({
            "wall_ns": child.begun.elapsed().as_nanos() as u64,
            "cpu_ns": used.cpu_ns - child.used_before.cpu_ns,
            "steal_ns": used.steal_ns - child.used_before.steal_ns,
            "late_ns": late,
            "interfaces": interfaces,
        });
        let path = Path::new(NODE).join("out/host.json");
        fs::write(path, format!("{evidence}\n")).of(|| "out/host.json".into())
    }
}

fn read() -> Result<(Plan, Place)> {
    let text = fs::read_to_string(format!("{NODE}/plan.json")).of(|| "plan.json".into())?;
    let plan = Plan::parse(&text)?;
    let place = Place::read(NODE, plan.nodes.len())?;
    let place = place.ok_or_else(|| Failure::new(format!("{NODE}/place.json is missing")))?;
    Ok((plan, place))
}

/// Frames are to cross it as they are: no checksum or segmentation left to a device, no frames of its own.
fn prepare_interface(interface: &str, mtu: u32, guest: bool) -> Result<()> {
    let here = || format!("interface {interface}");
    // Not every device knows all of them; what stays on is in the evidence.
    let _ = Command::new("ethtool")
        .args([
            "-K", interface, "rx", "off", "tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if guest {
        fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1").of(here)?;
    }
    let mtu = mtu.to_string();
    machine::run("ip", &["link", "set", interface, "mtu", &mtu, "gso_max_segs", "1", "up"], "")
}

fn interface_counters(interface: &str) -> Value {
    let count = |name: &str| -> u64 {
        let path = format!("/sys/class/net/{interface}/statistics/{name}");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let output = Command::new("ethtool").args(["-k", interface]).output();
    let features =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    const MATTER: [&str; 5] = [
        "tx-checksumming",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
        "large-receive-offload",
    ];
    let on = |name: &&&str| features.lines().any(|line| line.trim().starts_with(&format!("{name}: on")));
    let offloads: Vec<&&str> = MATTER.iter().filter(on).collect();
    json!({
        "rx_packets": count("rx_packets"), "tx_packets": count("tx_packets"),
        "rx_dropped": count("rx_dropped"), "tx_dropped": count("tx_dropped"), "offloads": offloads,
    })
}

/// The first node to come says when it was; the others take its word.
fn shared_origin(now_ns: i64) -> Result<i64> {
    let here = || SHARED_ORIGIN.to_owned();
    let own = format!("{SHARED_ORIGIN}.{}", std::process::id());
    // By link, so that whoever reads it reads it whole.
    let own = format!("{own}-{now_ns}");
    fs::write(&own, now_ns.to_string()).of(here)?;
    let linked = fs::hard_link(&own, SHARED_ORIGIN);
    let _ = fs::remove_file(&own);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error).of(here),
        _ => fs::read_to_string(SHARED_ORIGIN).of(here)?.trim().parse().of(here),
    }
}

fn monotonic_ns() -> Result<i64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).of(|| "clock".into())?;
    Ok(now.num_nanoseconds())
}

/// Of all children that were waited for, and of the whole machine.
fn used() -> Used {
    let cpu_ns = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as u64 * 1000
    });
    // /proc/stat counts in ticks of 10 ms; the eighth number is steal.
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = stat
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(8))
        .and_then(|word| word.parse().ok());
    Used { cpu_ns, steal_ns: steal.unwrap_or(0u64) * 10_000_000 }
}
