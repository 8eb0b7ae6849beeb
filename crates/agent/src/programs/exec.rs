// SPDX-License-Identifier: Apache-2.0
//! Starts programs in the thread's current network namespace, with the node's environment and view of the file system.

use crate::control::message::ExecRequest;
use crate::lab::view::View;
use crate::programs::terminal;
use crate::subprocess::PATH;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Settings that all programs of a node share, besides the network namespace.
pub struct NodeContext<'a> {
    pub environment: &'a BTreeMap<String, String>,
    pub view: &'a View,
    /// Whether the program leads a process group, so that its descendants can be killed with it.
    pub new_group: bool,
}

pub struct Child {
    pub pid: i32,
    /// Read end of the program's stdout, or the master of its terminal.
    pub stdout: OwnedFd,
    /// None: the program has a terminal.
    pub stderr: Option<OwnedFd>,
}

/// A shell's exit status for a program that could not be started.
pub const EXIT_NOT_STARTED: i32 = 127;

/// Settings of one launch, besides those of its node.
pub struct LaunchContext<'a> {
    pub environment: &'a BTreeMap<String, String>,
    /// Working directory, in the node's view of the file system.
    pub folder: &'a str,
    pub stdout: File,
    pub stderr: File,
}

/// Starts a program for the host, with pipes or a terminal.
pub fn spawn(request: &ExecRequest, node: &NodeContext<'_>) -> Result<Child, String> {
    // A program with a terminal leads a session, and with it a process group.
    let new_group = node.new_group && request.terminal.is_none();
    let mut command = command(&request.argv, &NodeContext { new_group, ..*node })?;
    command.envs(&request.env);
    command.current_dir(request.cwd.as_deref().unwrap_or("/"));
    if let Some(size) = request.terminal {
        let master =
            terminal::attach(&mut command, size).map_err(|error| format!("its terminal: {error}"))?;
        let child = command.spawn().map_err(|error| format!("{}: {error}", request.argv[0]))?;
        return Ok(Child { pid: child.id() as i32, stdout: master, stderr: None });
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", request.argv[0]))?;
    let stdout = child.stdout.take().ok_or("no stdout")?.into();
    let stderr = Some(child.stderr.take().ok_or("no stderr")?.into());
    Ok(Child { pid: child.id() as i32, stdout, stderr })
}

/// Starts a launch of the plan. Returns its process id.
pub fn spawn_launch(
    argv: &[String],
    node: &NodeContext<'_>,
    launch: LaunchContext<'_>,
) -> Result<i32, String> {
    let mut command = command(argv, node)?;
    command.envs(launch.environment).stdout(launch.stdout).stderr(launch.stderr);
    let folder = CString::new(launch.folder).map_err(|error| format!("its folder: {error}"))?;
    // `Command::current_dir` would be applied before the node's folders are mounted.
    // SAFETY: the closure makes one system call with a live string.
    unsafe {
        command.pre_exec(move || match libc::chdir(folder.as_ptr()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let child = command.spawn().map_err(|error| format!("{}: {error}", argv[0]))?;
    Ok(child.id() as i32)
}

/// Kills the process with the agent. Processes in the agent's process group end with it anyway.
fn kill_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)
}

/// Starts a daemon of the plan with `log` as stdout and stderr. Returns its process id.
pub fn spawn_daemon(argv: &[String], node: &NodeContext<'_>, log: File) -> Result<i32, String> {
    let mut command = command(argv, node)?;
    let copy = log.try_clone().map_err(|error| format!("its log: {error}"))?;
    command.current_dir("/").stdout(copy).stderr(log);
    let child = command.spawn().map_err(|error| format!("{}: {error}", argv[0]))?;
    Ok(child.id() as i32)
}

fn command(argv: &[String], node: &NodeContext<'_>) -> Result<Command, String> {
    let (name, arguments) = argv.split_first().ok_or("argv is empty")?;
    let mut command = Command::new(name);
    command.args(arguments).env_clear().env("PATH", PATH).envs(node.environment).stdin(Stdio::null());
    let view = node.view.clone();
    // SAFETY: between fork and exec, the closure only makes system calls and does not allocate.
    unsafe { command.pre_exec(move || view.enter()) };
    if node.new_group {
        command.process_group(0);
        // SAFETY: the function makes one system call.
        unsafe { command.pre_exec(kill_with_parent) };
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::message::TerminalSize;
    use crate::programs::terminal::{Terminal, TerminalState};
    use nix::sys::signal::{signal, SigHandler};
    use std::io::Read;

    #[test]
    fn a_program_gets_only_the_given_environment() {
        let argv = ["sh", "-c", "echo $GREETING $HOME; pwd"].map(String::from).to_vec();
        let env = [("GREETING".to_owned(), "hello".to_owned())].into();
        let request = ExecRequest {
            id: 1,
            node: "h1".into(),
            argv,
            env,
            cwd: Some("/usr".into()),
            terminal: None,
            shell: false,
        };
        let environment = [("HOME".to_owned(), "/root".to_owned())].into();
        let node = NodeContext { environment: &environment, view: &View::default(), new_group: true };
        let mut output = String::new();
        File::from(spawn(&request, &node).unwrap().stdout).read_to_string(&mut output).unwrap();
        assert_eq!(output, "hello /root\n/usr\n");
    }

    #[test]
    fn a_terminal_has_a_size_input_and_signals() {
        let argv = ["sh", "-c", "stty size; read word; stty size; stty -icanon; echo [$word]; read never"];
        let request = ExecRequest {
            id: 1,
            node: "h1".into(),
            argv: argv.map(String::from).to_vec(),
            env: BTreeMap::new(),
            cwd: None,
            terminal: Some(TerminalSize { rows: 24, columns: 80 }),
            shell: true,
        };
        let environment = BTreeMap::new();
        let node = NodeContext { environment: &environment, view: &View::default(), new_group: true };
        // SAFETY: no handler is installed. The agent may ignore SIGINT; a program at a terminal must not inherit that.
        let before = unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }.unwrap();
        let child = spawn(&request, &node).unwrap();
        unsafe { signal(Signal::SIGINT, before) }.unwrap();
        assert!(child.stderr.is_none());
        let mut master = File::from(child.stdout);
        let mut terminal = Terminal::new(child.pid, true);
        let mut output = String::new();
        let mut read_until = |master: &mut File, word: &str| {
            while !output.contains(word) {
                let mut buffer = [0; 256];
                let length = master.read(&mut buffer).unwrap();
                output.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
            }
        };
        read_until(&mut master, "24 80");
        assert_eq!(terminal.state(&master), TerminalState::default());
        terminal::resize(&master, TerminalSize { rows: 50, columns: 132 });
        terminal.write_input(&master, b"sax\x7fme\n");
        read_until(&mut master, "50 132");
        read_until(&mut master, "[same]");
        assert_eq!(terminal.state(&master), TerminalState { raw: true, prompt: true });
        terminal.write_input(&master, b"\x03");
        assert!(matches!(
            nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child.pid), None),
            Ok(nix::sys::wait::WaitStatus::Signaled(_, Signal::SIGINT, _))
        ));
    }
}
