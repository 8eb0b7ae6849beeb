// SPDX-License-Identifier: Apache-2.0
//! What PID 1 owes its kernel: mounts, modules, limits, and at the end the power button.

use crate::failure::{Failure, Of, Result};
use nix::kmod::{finit_module, ModuleInitFlags};
use nix::mount::{mount, MsFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::resource::{setrlimit, Resource};
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the guest sees the toolboxes.
const TOOLS: &str = "/run/qbed/tools";
/// Beside the folder of modules: links to what an interactive lab sees where the host has it.
const SEEN: &str = "seen";
/// What somebody may start in a lab, and what a program of the lab's own may.
const FREE_TASKS: usize = 1024;
const TASKS_A_PROGRAM: usize = 16;
/// fs.nr_open's default: the most descriptors that a process may ask for.
const DESCRIPTORS: u64 = 1 << 20;

/// Mounts what the agent itself needs over the host's read-only root. `cell`: where the cell folder will be.
pub fn mount_kernel(cell: &str) -> Result<()> {
    mount_one("proc", "/proc", None)?;
    mount_one("sysfs", "/sys", None)?;
    mount_one("devtmpfs", "/dev", None)?;
    // `.` is the kernel's working directory on the host: the only hostfs that the kernel lets be written.
    mount_one("hostfs", cell, Some("."))?;
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS).of(|| "raising RLIMIT_NOFILE".into())?;
    allow_congestion_controls()
}

/// Mounts what terminals need, where nobody has.
pub fn mount_terminals() -> Result<()> {
    const TERMINALS: &str = "/dev/pts";
    if Path::new(TERMINALS).join("ptmx").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(TERMINALS).of(|| TERMINALS.into())?;
    mount_one("devpts", TERMINALS, None)
}

/// Devices in the first namespace carry frames between nodes, and nothing of their own.
pub fn quiet_home() -> Result<()> {
    for scope in ["all", "default"] {
        let key = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        std::fs::write(&key, "1").of(|| key.clone())?;
    }
    Ok(())
}

/// Lets every node choose any congestion control that the kernel has: a network namespace other than the first may use
/// only those that the first allows, and by itself it allows no more than reno and cubic.
fn allow_congestion_controls() -> Result<()> {
    let here = || "allowing the kernel's congestion controls".into();
    let available = std::fs::read("/proc/sys/net/ipv4/tcp_available_congestion_control").of(here)?;
    std::fs::write("/proc/sys/net/ipv4/tcp_allowed_congestion_control", available).of(here)
}

/// A folder that the host lends, and where the guest sees it.
pub struct Lent {
    folder: File,
    target: PathBuf,
}

/// The toolboxes, folders of programs: what the links beside the folder of modules lead to, wherever the host has it,
/// opened before it may be hidden.
pub fn toolboxes() -> Result<Vec<Lent>> {
    let modules = module_folder()?;
    lent(modules.parent().unwrap_or(&modules), |name, _| Path::new(TOOLS).join(name))
}

/// The folders that an interactive lab sees where the host has them, though that is hidden.
pub fn seen() -> Result<Vec<Lent>> {
    let folder = module_folder()?.with_file_name(SEEN);
    if folder.exists() {
        lent(&folder, |_, place| place)
    } else {
        Ok(Vec::new())
    }
}

/// What the links in a folder lead to; `target` says where it will be, from a link's name and where it leads.
fn lent(links: &Path, target: impl Fn(OsString, PathBuf) -> PathBuf) -> Result<Vec<Lent>> {
    let here = || format!("the host's folders in {}", links.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(links).of(here)? {
        let entry = entry.of(here)?;
        if entry.file_type().of(here)?.is_symlink() && entry.path().is_dir() {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
            let folder = options.open(entry.path()).of(here)?;
            let place = std::fs::read_link(entry.path()).of(here)?;
            found.push(Lent { folder, target: target(entry.file_name(), place) });
        }
    }
    Ok(found)
}

/// Mounts room to write. What the host has in these folders is hidden from then on, kernel modules for example, but for
/// what it lends.
///
/// A new file of tmpfs draws a random number, one of ramfs does not: where the host has what an interactive lab sees
/// must not change what is drawn later.
pub fn mount_scratch(lent: &[Lent], interactive: bool) -> Result<()> {
    let (kind, options) = if interactive { ("ramfs", Some("mode=1777")) } else { ("tmpfs", None) };
    mount_one(kind, "/tmp", options)?;
    mount_one(kind, "/run", options)?;
    for Lent { folder, target } in lent {
        let here = || format!("mounting {}", target.display());
        std::fs::create_dir_all(target).of(here)?;
        let source = format!("/proc/self/fd/{}", folder.as_raw_fd());
        mount(Some(source.as_str()), target, None::<&str>, MsFlags::MS_BIND, None::<&str>).of(here)?;
    }
    Ok(())
}

fn mount_one(kind: &str, target: &str, options: Option<&str>) -> Result<()> {
    let mounted = mount(Some(kind), target, Some(kind), MsFlags::empty(), options);
    mounted.of(|| format!("mounting {kind} on {target}"))
}

/// The folder of the kernel modules, from the kernel's command line.
pub fn module_folder() -> Result<PathBuf> {
    let folder = std::env::var_os("QBED_MODULES");
    folder.map(PathBuf::from).ok_or_else(|| Failure::new("QBED_MODULES is not on the kernel's command line"))
}

pub fn load_module(folder: &Path, name: &str, parameters: &str) -> Result<()> {
    let path = folder.join(format!("{name}.ko"));
    let here = || format!("kernel module {name} ({})", path.display());
    let file = File::open(&path).of(here)?;
    let parameters = CString::new(parameters).of(here)?;
    finit_module(&file, &parameters, ModuleInitFlags::empty()).of(here)
}

/// Every task here is a process of the host: what multiplies without end comes to its end in this kernel.
/// `programs`: how many the lab itself runs.
pub fn limit_tasks(programs: usize) -> Result<()> {
    let key = "/proc/sys/kernel/threads-max";
    let here = || key.into();
    let room: usize = std::fs::read_to_string(key).of(here)?.trim().parse().of(here)?;
    std::fs::write(key, room.min(FREE_TASKS + TASKS_A_PROGRAM * programs).to_string()).of(here)
}

/// No module is loaded from here on: it would be code of the host's, with the rights of the user who runs the lab.
pub fn refuse_modules() -> Result<()> {
    let key = "/proc/sys/kernel/modules_disabled";
    std::fs::write(key, "1").of(|| key.into())
}

/// Ends the virtual machine. Files on hostfs are written through when they are closed, so nothing is lost.
pub fn power_off() -> nix::Result<Infallible> {
    reboot(RebootMode::RB_POWER_OFF)
}
