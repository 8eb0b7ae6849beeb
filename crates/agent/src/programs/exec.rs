// SPDX-License-Identifier: Apache-2.0
//! Starts a program of the host inside the lab, in the network namespace where the thread is.

use crate::gate::Program;
use crate::lab::view::View;
use crate::machine::PATH;
use crate::programs::terminal;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Where a program runs, besides the network namespace: what its node gives to all of them.
pub struct Surroundings<'a> {
    pub environment: &'a BTreeMap<String, String>,
    pub view: &'a View,
    /// Whether all that it starts can be ended with it.
    pub own_group: bool,
}

pub struct Started {
    pub pid: i32,
    /// Or our end of its terminal.
    pub stdout: OwnedFd,
    pub stderr: Option<OwnedFd>,
}

/// A shell's code for a program that could not be started.
pub const NOT_STARTED: i32 = 127;

/// What only this program has, and where what it says goes.
pub struct Kept<'a> {
    pub environment: &'a BTreeMap<String, String>,
    /// Where it runs, as its node sees it.
    pub folder: &'a str,
    pub stdout: File,
    pub stderr: File,
}

pub fn spawn(program: &Program, around: &Surroundings<'_>) -> Result<Started, String> {
    // A terminal's program leads a session, which is a group of its own.
    let own_group = around.own_group && program.terminal.is_none();
    let mut command = command(&program.argv, &Surroundings { own_group, ..*around })?;
    command.envs(&program.env);
    command.current_dir(program.cwd.as_deref().unwrap_or("/"));
    if let Some(size) = program.terminal {
        let ours = terminal::give(&mut command, size).map_err(|error| format!("its terminal: {error}"))?;
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.argv[0]))?;
        return Ok(Started { pid: child.id() as i32, stdout: ours, stderr: None });
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.argv[0]))?;
    let stdout = child.stdout.take().ok_or("no stdout")?.into();
    let stderr = Some(child.stderr.take().ok_or("no stderr")?.into());
    Ok(Started { pid: child.id() as i32, stdout, stderr })
}

/// Starts a program whose output is kept. Returns its process id.
pub fn spawn_kept(argv: &[String], around: &Surroundings<'_>, kept: Kept<'_>) -> Result<i32, String> {
    let mut command = command(argv, around)?;
    command.envs(kept.environment).stdout(kept.stdout).stderr(kept.stderr);
    let folder = CString::new(kept.folder).map_err(|error| format!("its folder: {error}"))?;
    // Not `current_dir`, which comes before the node's own folders are there.
    // SAFETY: it makes a system call only, with a string that lives.
    unsafe {
        command.pre_exec(move || match libc::chdir(folder.as_ptr()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let child = command.spawn().map_err(|error| format!("{}: {error}", argv[0]))?;
    Ok(child.id() as i32)
}

/// Who is in the agent's group ends with it anyway.
fn end_with_agent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)
}

/// Starts a program that nobody listens to: what it says goes to a file. Returns its process id.
pub fn spawn_resident(argv: &[String], around: &Surroundings<'_>, log: File) -> Result<i32, String> {
    let mut command = command(argv, around)?;
    let copy = log.try_clone().map_err(|error| format!("its log: {error}"))?;
    command.current_dir("/").stdout(copy).stderr(log);
    let child = command.spawn().map_err(|error| format!("{}: {error}", argv[0]))?;
    Ok(child.id() as i32)
}

fn command(argv: &[String], around: &Surroundings<'_>) -> Result<Command, String> {
    let (name, arguments) = argv.split_first().ok_or("argv is empty")?;
    let mut command = Command::new(name);
    command.args(arguments).env_clear().env("PATH", PATH).envs(around.environment).stdin(Stdio::null());
    let view = around.view.clone();
    // SAFETY: what runs between fork and exec makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(move || view.enter()) };
    if around.own_group {
        command.process_group(0);
        // SAFETY: it makes a system call only.
        unsafe { command.pre_exec(end_with_agent) };
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Size;
    use crate::programs::terminal::{Mood, Terminal};
    use nix::sys::signal::{signal, SigHandler};
    use std::io::Read;

    #[test]
    fn a_program_gets_its_environment_and_nothing_else() {
        let argv = ["sh", "-c", "echo $GREETING $HOME; pwd"].map(String::from).to_vec();
        let env = [("GREETING".to_owned(), "hello".to_owned())].into();
        let program = Program {
            id: 1,
            node: "h1".into(),
            argv,
            env,
            cwd: Some("/usr".into()),
            terminal: None,
            shell: false,
        };
        let environment = [("HOME".to_owned(), "/root".to_owned())].into();
        let around = Surroundings { environment: &environment, view: &View::default(), own_group: true };
        let mut output = String::new();
        File::from(spawn(&program, &around).unwrap().stdout).read_to_string(&mut output).unwrap();
        assert_eq!(output, "hello /root\n/usr\n");
    }

    #[test]
    fn at_a_terminal_it_has_its_size_and_what_is_typed() {
        let argv = ["sh", "-c", "stty size; read word; stty size; stty -icanon; echo [$word]; read never"];
        let program = Program {
            id: 1,
            node: "h1".into(),
            argv: argv.map(String::from).to_vec(),
            env: BTreeMap::new(),
            cwd: None,
            terminal: Some(Size { rows: 24, columns: 80 }),
            shell: true,
        };
        let environment = BTreeMap::new();
        let around = Surroundings { environment: &environment, view: &View::default(), own_group: true };
        // SAFETY: no handler is given. This process may ignore Ctrl-C; what it starts at a terminal may not.
        let before = unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }.unwrap();
        let started = spawn(&program, &around).unwrap();
        unsafe { signal(Signal::SIGINT, before) }.unwrap();
        assert!(started.stderr.is_none());
        let mut ours = File::from(started.stdout);
        let mut terminal = Terminal::new(started.pid, true);
        let mut heard = String::new();
        let mut until = |ours: &mut File, word: &str| {
            while !heard.contains(word) {
                let mut piece = [0; 256];
                let length = ours.read(&mut piece).unwrap();
                heard.push_str(std::str::from_utf8(&piece[..length]).unwrap());
            }
        };
        until(&mut ours, "24 80");
        assert_eq!(terminal.mood(&ours), Mood::default());
        terminal::resize(&ours, Size { rows: 50, columns: 132 });
        terminal.type_in(&ours, b"sax\x7fme\n");
        until(&mut ours, "50 132");
        until(&mut ours, "[same]");
        assert_eq!(terminal.mood(&ours), Mood { raw: true, prompt: true });
        terminal.type_in(&ours, b"\x03");
        assert!(matches!(
            nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(started.pid), None),
            Ok(nix::sys::wait::WaitStatus::Signaled(_, Signal::SIGINT, _))
        ));
    }
}
