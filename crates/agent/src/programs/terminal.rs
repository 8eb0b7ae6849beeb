// SPDX-License-Identifier: Apache-2.0
//! Terminals of programs that somebody types to: the kernel's pseudo-terminals.

use crate::gate::Size;
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::pty::{openpty, Winsize};
use nix::sys::termios::{tcgetattr, LocalFlags};
use nix::unistd::tcgetpgrp;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Of what is typed and nobody has read, no more than this is kept.
const TYPED_MAX: usize = 1 << 20;

/// What somebody does who reads a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mood {
    /// It reads keys, not lines.
    pub raw: bool,
    /// It is the shell to which the terminal was given, and waits for a command.
    pub prompt: bool,
}

pub struct Terminal {
    pid: i32,
    is_shell: bool,
    /// What the program has not taken yet.
    typed: Vec<u8>,
    pub told: Mood,
}

/// Opens a terminal, and makes it that of a command. Returns our end.
pub fn give(command: &mut Command, size: Size) -> io::Result<OwnedFd> {
    let pair = openpty(&window(size), None)?;
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    command.stdin(Stdio::from(pair.slave.try_clone()?));
    command.stdout(Stdio::from(pair.slave.try_clone()?)).stderr(Stdio::from(pair.slave));
    // SAFETY: they make system calls only.
    unsafe {
        command.pre_exec(|| {
            // Whoever started the agent may ignore what the keys of a terminal say (nohup, `&` in a script).
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    };
    Ok(pair.master)
}

fn window(size: Size) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The program is told by SIGWINCH. A terminal that has gone is no error.
pub fn resize(ours: &File, size: Size) {
    let window = window(size);
    // SAFETY: it reads a struct that lives.
    unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSWINSZ, &window) };
}

impl Terminal {
    pub fn new(pid: i32, is_shell: bool) -> Self {
        Self { pid, is_shell, typed: Vec::new(), told: Mood::default() }
    }

    /// Types; what does not fit is typed later, by another call.
    pub fn type_in(&mut self, mut ours: &File, bytes: &[u8]) {
        if self.typed.len() + bytes.len() <= TYPED_MAX {
            self.typed.extend_from_slice(bytes);
        }
        while !self.typed.is_empty() {
            match ours.write(&self.typed) {
                Ok(length) if length > 0 => drop(self.typed.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    pub fn mood(&self, ours: &File) -> Mood {
        let raw = tcgetattr(ours).is_ok_and(|settings| !settings.local_flags.contains(LocalFlags::ICANON));
        let in_front = || tcgetpgrp(ours.as_fd()).is_ok_and(|group| group.as_raw() == self.pid);
        Mood { raw, prompt: self.is_shell && raw && in_front() }
    }
}
