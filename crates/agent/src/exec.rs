// SPDX-License-Identifier: Apache-2.0
//! Starts a program of the host inside the lab, in the network namespace where the thread is.

use crate::gate::Program;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// Debian's, for root.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub struct Started {
    pub pid: i32,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

pub fn spawn(program: &Program) -> Result<Started, String> {
    let (name, arguments) = program.argv.split_first().ok_or("argv is empty")?;
    let mut command = Command::new(name);
    command.args(arguments).env_clear().env("PATH", PATH).envs(&program.env);
    command.current_dir(program.cwd.as_deref().unwrap_or("/"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let stdout = child.stdout.take().ok_or("no stdout")?.into();
    let stderr = child.stderr.take().ok_or("no stderr")?.into();
    Ok(Started { pid: child.id() as i32, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_program_gets_its_environment_and_nothing_else() {
        let argv = ["sh", "-c", "echo $GREETING $HOME; pwd"].map(String::from).to_vec();
        let env = [("GREETING".to_owned(), "hello".to_owned())].into();
        let program = Program { id: 1, node: "h1".into(), argv, env, cwd: Some("/usr".into()) };
        let mut output = String::new();
        std::fs::File::from(spawn(&program).unwrap().stdout).read_to_string(&mut output).unwrap();
        assert_eq!(output, "hello\n/usr\n");
    }
}
