// SPDX-License-Identifier: Apache-2.0
//! Pseudo-terminals of interactive programs.

use crate::control::message::TerminalSize;
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::pty::{openpty, Winsize};
use nix::sys::termios::{tcgetattr, LocalFlags};
use nix::unistd::tcgetpgrp;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Limit on input that the program has not read yet; further input is dropped.
const PENDING_INPUT_MAX: usize = 1 << 20;

/// Input mode of the program at a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TerminalState {
    /// Single keys: the terminal is not in canonical mode.
    pub raw: bool,
    /// A command line: the shell that was started at the terminal is in the foreground.
    pub prompt: bool,
}

pub struct Terminal {
    pid: i32,
    is_shell: bool,
    /// Input that the terminal has not accepted yet.
    pending_input: Vec<u8>,
    /// State in the last `terminal` event.
    pub reported: TerminalState,
}

/// Opens a pseudo-terminal and makes it the controlling terminal of a command. Returns the master.
pub fn attach(command: &mut Command, size: TerminalSize) -> io::Result<OwnedFd> {
    let pair = openpty(&window(size), None)?;
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    command.stdin(Stdio::from(pair.slave.try_clone()?));
    command.stdout(Stdio::from(pair.slave.try_clone()?)).stderr(Stdio::from(pair.slave));
    // SAFETY: the closure only makes system calls.
    unsafe {
        command.pre_exec(|| {
            // The agent may have inherited ignored terminal signals (nohup, `&` in a script).
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

fn window(size: TerminalSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Sets the size, which sends SIGWINCH to the program. Errors of a closed terminal are ignored.
pub fn resize(master: &File, size: TerminalSize) {
    let window = window(size);
    // SAFETY: the ioctl reads a live struct.
    unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &window) };
}

impl Terminal {
    pub fn new(pid: i32, is_shell: bool) -> Self {
        Self { pid, is_shell, pending_input: Vec::new(), reported: TerminalState::default() }
    }

    /// Writes input to the terminal. The rest is written by the next call if the terminal's buffer is full.
    pub fn write_input(&mut self, mut master: &File, bytes: &[u8]) {
        if self.pending_input.len() + bytes.len() <= PENDING_INPUT_MAX {
            self.pending_input.extend_from_slice(bytes);
        }
        while !self.pending_input.is_empty() {
            match master.write(&self.pending_input) {
                Ok(length) if length > 0 => drop(self.pending_input.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    pub fn state(&self, master: &File) -> TerminalState {
        let raw = tcgetattr(master).is_ok_and(|settings| !settings.local_flags.contains(LocalFlags::ICANON));
        let in_foreground = || tcgetpgrp(master.as_fd()).is_ok_and(|group| group.as_raw() == self.pid);
        TerminalState { raw, prompt: self.is_shell && raw && in_foreground() }
    }
}
