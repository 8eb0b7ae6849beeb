// SPDX-License-Identifier: Apache-2.0
//! Duties of PID 1 in a guest: mounts, kernel modules, limits, power-off.

use crate::failure::{Context, Failure, Result};
use nix::kmod::{finit_module, ModuleInitFlags};
use nix::mount::{mount, MsFlags};
use nix::sys::mman::{mlockall, MlockAllFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::resource::{setrlimit, Resource};
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Mount point of the toolboxes in the guest.
const TOOLS: &str = "/run/qbed/tools";
/// Folder beside the kernel modules, with links to the folders of the host that an interactive lab sees.
const VISIBLE: &str = "seen";
/// Limits on tasks: of programs that the user starts, and of each program of the plan.
const USER_TASKS: usize = 1024;
const TASKS_PER_PROGRAM: usize = 16;
/// RLIMIT_NOFILE: the default of fs.nr_open, the largest possible value.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Mounts the file systems that the agent needs over the host's read-only root. `cell`: mount point of the cell folder.
pub fn mount_filesystems(cell: &str) -> Result<()> {
    mount_one("proc", "/proc", None)?;
    mount_one("sysfs", "/sys", None)?;
    mount_one("devtmpfs", "/dev", None)?;
    // `.` is the UML kernel's working directory on the host, the only hostfs that it mounts writable.
    mount_one("hostfs", cell, Some("."))?;
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX, DESCRIPTORS_MAX)
        .with_context(|| "raising RLIMIT_NOFILE".into())?;
    allow_congestion_controls()
}

/// Mounts devpts, unless it is mounted.
pub fn mount_devpts() -> Result<()> {
    const TARGET: &str = "/dev/pts";
    if Path::new(TARGET).join("ptmx").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(TARGET).with_context(|| TARGET.into())?;
    mount_one("devpts", TARGET, None)
}

/// Disables IPv6 in the root namespace: its devices only forward frames between nodes.
pub fn disable_root_ipv6() -> Result<()> {
    for scope in ["all", "default"] {
        let key = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        std::fs::write(&key, "1").with_context(|| key.clone())?;
    }
    Ok(())
}

/// Allows all congestion controls of the kernel in every node. Other network namespaces may use only those that the
/// initial one allows, by default reno and cubic.
fn allow_congestion_controls() -> Result<()> {
    let context = || "allowing the kernel's congestion controls".into();
    let available =
        std::fs::read("/proc/sys/net/ipv4/tcp_available_congestion_control").with_context(context)?;
    std::fs::write("/proc/sys/net/ipv4/tcp_allowed_congestion_control", available).with_context(context)
}

/// A folder of the host that is mounted in the guest.
pub struct HostMount {
    folder: File,
    target: PathBuf,
}

/// The toolboxes (folders of programs): targets of the symlinks beside the folder of modules. They are opened before
/// the scratch mounts may hide them.
pub fn toolboxes() -> Result<Vec<HostMount>> {
    let modules = module_folder()?;
    host_mounts(modules.parent().unwrap_or(&modules), |name, _| Path::new(TOOLS).join(name))
}

/// Folders that an interactive lab sees under their host paths, although these are in hidden folders.
pub fn visible_folders() -> Result<Vec<HostMount>> {
    let folder = module_folder()?.with_file_name(VISIBLE);
    if folder.exists() {
        host_mounts(&folder, |_, path| path)
    } else {
        Ok(Vec::new())
    }
}

/// Opens the targets of the symlinks in a folder. `target` computes the mount point from a link's name and its target.
fn host_mounts(links: &Path, target: impl Fn(OsString, PathBuf) -> PathBuf) -> Result<Vec<HostMount>> {
    let context = || format!("the host's folders in {}", links.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(links).with_context(context)? {
        let entry = entry.with_context(context)?;
        if entry.file_type().with_context(context)?.is_symlink() && entry.path().is_dir() {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
            let folder = options.open(entry.path()).with_context(context)?;
            let path = std::fs::read_link(entry.path()).with_context(context)?;
            found.push(HostMount { folder, target: target(entry.file_name(), path) });
        }
    }
    Ok(found)
}

/// Mounts writable file systems on /tmp and /run, which hides the host's content of these folders, and `mounts` in
/// them.
///
/// Interactive labs use ramfs: a new file of tmpfs draws a random number, so the mount points, which depend on paths
/// of the host, would change later draws.
pub fn mount_scratch(mounts: &[HostMount], interactive: bool) -> Result<()> {
    let (kind, options) = if interactive { ("ramfs", Some("mode=1777")) } else { ("tmpfs", None) };
    mount_one(kind, "/tmp", options)?;
    mount_one(kind, "/run", options)?;
    for HostMount { folder, target } in mounts {
        let context = || format!("mounting {}", target.display());
        std::fs::create_dir_all(target).with_context(context)?;
        let source = format!("/proc/self/fd/{}", folder.as_raw_fd());
        mount(Some(source.as_str()), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .with_context(context)?;
    }
    Ok(())
}

fn mount_one(kind: &str, target: &str, options: Option<&str>) -> Result<()> {
    let mounted = mount(Some(kind), target, Some(kind), MsFlags::empty(), options);
    mounted.with_context(|| format!("mounting {kind} on {target}"))
}

/// The folder of the kernel modules, from the kernel's command line.
pub fn module_folder() -> Result<PathBuf> {
    let folder = std::env::var_os("QBED_MODULES");
    folder.map(PathBuf::from).ok_or_else(|| Failure::new("QBED_MODULES is not on the kernel's command line"))
}

pub fn load_module(folder: &Path, name: &str, parameters: &str) -> Result<()> {
    let path = folder.join(format!("{name}.ko"));
    let context = || format!("kernel module {name} ({})", path.display());
    let file = File::open(&path).with_context(context)?;
    let parameters = CString::new(parameters).with_context(context)?;
    finit_module(&file, &parameters, ModuleInitFlags::empty()).with_context(context)
}

/// Limits the number of tasks, because every task is a process of the host. `programs`: number of programs in the plan.
pub fn limit_tasks(programs: usize) -> Result<()> {
    let key = "/proc/sys/kernel/threads-max";
    let context = || key.into();
    let limit: usize =
        std::fs::read_to_string(key).with_context(context)?.trim().parse().with_context(context)?;
    std::fs::write(key, limit.min(USER_TASKS + TASKS_PER_PROGRAM * programs).to_string())
        .with_context(context)
}

/// Disables module loading: a module would run on the host, with the rights of the user who runs the lab.
pub fn disable_module_loading() -> Result<()> {
    let key = "/proc/sys/kernel/modules_disabled";
    std::fs::write(key, "1").with_context(|| key.into())
}

/// Bytes by which the heap grows beyond a request.
const HEAP_STEP: i32 = 512 << 10;

/// Maps the pages of this process when it allocates them. A page fault of a guest's process costs three stops of a
/// process of the host, and a large plan has thousands of pages. Child processes do not inherit this (mlockall(2)).
pub fn map_pages_at_once() -> Result<()> {
    // SAFETY: sets a parameter of the allocator.
    unsafe { libc::mallopt(libc::M_TOP_PAD, HEAP_STEP) };
    mlockall(MlockAllFlags::MCL_FUTURE).with_context(|| "mlockall".into())
}

/// Ends the virtual machine. Files on hostfs are written to the host when they are closed.
pub fn power_off() -> nix::Result<Infallible> {
    reboot(RebootMode::RB_POWER_OFF)
}
