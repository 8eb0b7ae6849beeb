// SPDX-License-Identifier: Apache-2.0
//! The process of a running node (a guest, or an agent on the host's kernel), and the supervisor's end of its gate.

use crate::container::evidence::Start;
use crate::container::frames::Frames;
use crate::container::WRITE_TIMEOUT;
use crate::control::gate::take_lines;
use crate::failure::{Context, Result};
use crate::placement::Placement;
use crate::plan::place::Place;
use crate::plan::{End, Plan};
use crate::results::files::{folder, out_path};
use crate::subprocess;
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::sys::signal::{killpg, SigSet, Signal};
use nix::sys::time::TimeValLike;
use nix::sys::wait::waitpid;
use nix::time::{clock_gettime, ClockId};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const TOOLCHAIN: &str = "/opt/qbed";
/// Descriptor of the node's end of the gate (docs/formats.md §5).
const GATE: i32 = 200;
const NICE: i32 = -10;
/// Folder of the UML kernel's files, beside the results.
const UML: &str = "uml";

/// Configuration of the container's node.
pub struct Node {
    pub plan: Plan,
    pub place: Place,
    pub is_native: bool,
}

impl Node {
    pub fn new(plan: Plan, place: Place) -> Self {
        let is_native = Placement::new(&plan, Some(&place)).on_host_kernel();
        Self { plan, place, is_native }
    }

    pub fn name(&self) -> &str {
        &self.plan.nodes[self.place.node].name
    }

    /// The node's link ends, with the links' MTU.
    pub fn ends(&self) -> impl Iterator<Item = (&End, u32)> {
        let ends = self.plan.links.iter().flat_map(|link| link.ends().map(|end| (end, link.mtu)));
        ends.filter(|(end, _)| end.node == self.place.node)
    }

    fn command(&self, mode: &str, origin_ns: i64) -> Command {
        if self.is_native {
            let mut command = Command::new(format!("{TOOLCHAIN}/qbed-agent"));
            command.args(["native", mode, &origin_ns.to_string()]).env("QBED_GATE", GATE.to_string());
            return command;
        }
        let mut command = Command::new(format!("{TOOLCHAIN}/linux"));
        command.env_clear().env("PATH", subprocess::PATH).env("TMPDIR", "/dev/shm");
        command.args(self.guest_arguments(mode, origin_ns));
        command
    }

    /// The guest's kernel command line: `boot` of place.json, the clock's origin, and the interfaces.
    fn guest_arguments(&self, mode: &str, origin_ns: i64) -> Vec<String> {
        let clock = format!("wall-clock={origin_ns}:{}", self.place.dilation);
        let gro = u8::from(self.place.gso);
        let interfaces = self.ends().enumerate().map(|(number, (end, mtu))| {
            format!("vec{number}:transport=raw,ifname={},depth=64,gro={gro},mtu={mtu}", end.interface)
        });
        let parameters = self.place.boot.iter().cloned().chain([clock]).chain(interfaces);
        parameters.chain(["--".to_owned(), mode.to_owned()]).collect()
    }

    /// The core for the guest: nodes are spread over the cores that the container may use.
    fn core(&self) -> Option<CpuSet> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        let mut core = CpuSet::new();
        core.set(*cores.get(self.place.node % cores.len().max(1))?).ok()?;
        Some(core)
    }
}

/// A running node.
pub struct Running {
    pid: Pid,
    gate: UnixStream,
    received: Vec<u8>,
    start: Start,
    pub frames: Frames,
    /// The container's interfaces.
    interfaces: Vec<String>,
    origin_ns: i64,
    pub is_cell: bool,
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.gate.as_fd()
    }
}

impl Running {
    pub fn start(node: &Node, mode: &str, origin_ns: i64) -> Result<Self> {
        let folder = Path::new(folder());
        for leftover in [out_path(""), folder.join(UML)] {
            let _ = fs::remove_dir_all(leftover);
        }
        fs::create_dir_all(out_path("")).with_context(|| "out".into())?;
        let console = File::create(folder.join("console.log")).with_context(|| "console.log".into())?;
        let (gate, child_end) = UnixStream::pair().with_context(|| "gate".into())?;
        gate.set_write_timeout(Some(WRITE_TIMEOUT)).with_context(|| "gate".into())?;
        let mut command = node.command(mode, origin_ns);
        command
            .stdin(Stdio::null())
            .stderr(console.try_clone().with_context(|| "console.log".into())?)
            .stdout(console);
        command.current_dir(folder).process_group(0);
        // A guest on two cores is ten times slower, because kernel and processes alternate all the time.
        let (descriptor, core) = (child_end.as_raw_fd(), node.core().filter(|_| !node.is_native));
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || prepare_child(descriptor, core)) };
        let frames = Frames::start(node.place.node)?;
        let interfaces = node.ends().map(|(end, _)| end.interface.clone()).collect();
        let start = Start::now();
        let child = command.spawn().with_context(|| "starting the node".into())?;
        let pid = Pid::from_raw(child.id() as i32);
        let (received, is_cell) = (Vec::new(), mode == "cell");
        Ok(Self { pid, gate, received, start, frames, interfaces, origin_ns, is_cell })
    }

    pub fn is(&self, pid: Option<Pid>) -> bool {
        pid == Some(self.pid)
    }

    pub fn send(&mut self, message: &Value) -> io::Result<()> {
        writeln!(self.gate, "{message}")
    }

    /// Reads events of the node. None if the gate is closed, or if no more are available after `clean_up`.
    pub fn receive(&mut self) -> Option<Vec<Value>> {
        let mut buffer = [0; 1 << 16];
        match self.gate.read(&mut buffer) {
            Ok(length) if length > 0 => self.received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Some(Vec::new()),
            _ => return None,
        }
        let lines = take_lines(&mut self.received);
        Some(lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Samples the lost frames of the interfaces, and writes `out/host.json`.
    pub fn count_frames(&mut self, node: &Node, has_ended: bool) -> Result<()> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).with_context(|| "clock".into())?;
        let lab_ns = (now.num_nanoseconds() - self.origin_ns) / i64::from(node.place.dilation);
        self.frames.sample(&self.interfaces, lab_ns - node.plan.epoch_ns as i64)?;
        self.start.write(&self.frames, &self.interfaces, has_ended)
    }

    /// Opens the packet sockets of a guest for `count_frames`. To be called when the guest is ready.
    pub fn find_sockets(&mut self, node: &Node) {
        if node.is_native {
            return;
        }
        if let Err(error) = self.frames.find_sockets(self.pid.as_raw()) {
            eprintln!("qbed-agent: the guest's packet sockets cannot be read: {error}");
        }
    }

    /// Kills remaining processes of the node. To be called when it has ended.
    pub fn clean_up(&mut self) {
        // A guest's processes are in its group. A surviving process may hold the gate open, so reads must not block.
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = self.gate.set_nonblocking(true);
        let _ = fs::remove_dir_all(Path::new(folder()).join(UML));
    }

    /// Sends SIGKILL; SIGCHLD follows.
    pub fn end(&self) {
        let _ = killpg(self.pid, Signal::SIGKILL);
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&self) {
        self.end();
        let _ = waitpid(self.pid, None);
    }
}

/// Runs in the forked child before exec: sets descriptors, signals, priority and CPU affinity.
fn prepare_child(gate: i32, core: Option<CpuSet>) -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    // SAFETY: no pointers.
    unsafe {
        if libc::dup2(gate, GATE) < 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
            return Err(io::Error::last_os_error());
        }
        // The default timer slack of Linux is 50 us.
        let _ = libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        // A higher priority reduces the lateness of deadlines; not every container has the permission.
        let _ = libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
    core.map_or(Ok(()), |core| Ok(sched_setaffinity(Pid::from_raw(0), &core)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{dumbbell, place};

    #[test]
    fn a_guests_command_line_has_boot_parameters_clock_and_interfaces() {
        let mut node = Node::new(dumbbell(|_| {}), place(1, &[0], 50));
        assert!(!node.is_native);
        let arguments = node.guest_arguments("cell", -7);
        let end = node.ends().next().unwrap();
        let vec = format!("vec0:transport=raw,ifname={},depth=64,gro=0,mtu={}", end.0.interface, end.1);
        assert_eq!(arguments, ["mem=64M", "wall-clock=-7:50", &vec, "--", "cell"]);
        node.place.gso = true;
        assert!(node.guest_arguments("cell", -7)[2].contains(",gro=1,"));
    }

    #[test]
    fn a_node_on_the_hosts_kernel_is_a_process_of_the_agent() {
        let node = Node::new(dumbbell(|_| {}), place(0, &[0], 50));
        let command = node.command("lab", 5);
        assert_eq!(command.get_program(), "/opt/qbed/qbed-agent");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["native", "lab", "5"]);
    }
}
