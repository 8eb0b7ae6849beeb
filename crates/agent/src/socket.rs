// SPDX-License-Identifier: Apache-2.0
//! System calls on sockets that the standard library does not offer: the agent's unsafe code is here.

use std::fs::File;
use std::io;
use std::mem::{size_of, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::LazyLock;

/// Types that are plain bytes to the kernel, every value of which is valid.
pub trait Plain: Copy {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for libc::packet_mreq {}
impl Plain for libc::tpacket_stats {}
impl<T: Plain, const N: usize> Plain for [T; N] {}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// None where the call would have to wait.
fn ready<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A socket of the calling thread's network namespace.
pub fn open(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; the descriptor it returns is ours alone.
    unsafe {
        let fd = checked(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

fn set_bytes(
    fd: &OwnedFd,
    level: i32,
    name: i32,
    value: *const libc::c_void,
    length: usize,
) -> io::Result<()> {
    // SAFETY: the callers pass a live object and its length.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, length as libc::socklen_t) };
    checked(result as isize).map(drop)
}

pub fn set<T: Plain>(fd: &OwnedFd, level: i32, name: i32, value: T) -> io::Result<()> {
    set_bytes(fd, level, name, (&raw const value).cast(), size_of::<T>())
}

pub fn set_text(fd: &OwnedFd, level: i32, name: i32, value: &str) -> io::Result<()> {
    set_bytes(fd, level, name, value.as_ptr().cast(), value.len())
}

/// Reads an option; what an older kernel does not fill stays zero.
pub fn get<T: Plain>(fd: &OwnedFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes; a Plain type is valid whatever they are.
    unsafe {
        let result = libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length);
        checked(result as isize)?;
        Ok(value.assume_init())
    }
}

pub fn congestion_control(fd: &OwnedFd) -> io::Result<String> {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `name`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    checked(result as isize)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// The pending error of a socket, if any.
pub fn pending_error(fd: &OwnedFd) -> Option<io::Error> {
    match get::<i32>(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => None,
        Ok(code) => Some(io::Error::from_raw_os_error(code)),
        Err(error) => Some(error),
    }
}

/// A socket address as the kernel lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
union Address {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
    link: libc::sockaddr_ll,
}

impl Address {
    fn zeroed() -> Self {
        // SAFETY: all members are plain integers.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    fn new(address: SocketAddr) -> (Self, usize) {
        let mut raw = Self::zeroed();
        match address {
            SocketAddr::V4(v4) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>())
            }
            SocketAddr::V6(v6) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (raw, size_of::<libc::sockaddr_in6>())
            }
        }
    }

    fn get(&self) -> SocketAddr {
        // SAFETY: the family says which member the kernel filled; all members are plain integers.
        unsafe {
            if i32::from(self.family) == libc::AF_INET6 {
                let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                SocketAddr::new(IpAddr::V6(ip), u16::from_be(self.v6.sin6_port))
            } else {
                let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                SocketAddr::new(IpAddr::V4(ip), u16::from_be(self.v4.sin_port))
            }
        }
    }
}

pub fn domain(address: IpAddr) -> i32 {
    if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }
}

pub fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let (raw, length) = Address::new(address);
    // SAFETY: `raw` lives through the call and has `length` bytes.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), length as libc::socklen_t) };
    checked(result as isize).map(drop)
}

/// Binds a packet socket to an interface.
pub fn bind_link(fd: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let mut raw = Address::zeroed();
    // SAFETY: writing plain integers of one member, then passing the whole with its length.
    let result = unsafe {
        raw.link.sll_family = libc::AF_PACKET as libc::sa_family_t;
        raw.link.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        raw.link.sll_ifindex = ifindex as i32;
        libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    checked(result as isize).map(drop)
}

/// Binds a netlink socket to an address of the kernel's choice: one without is told nothing.
pub fn bind_netlink(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: plain integers, zero where the kernel chooses.
    let result = unsafe {
        let mut address: libc::sockaddr_nl = MaybeUninit::zeroed().assume_init();
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length)
    };
    checked(result as isize).map(drop)
}

/// The interface that a packet socket receives from. None: another kind of socket, or one that receives nothing.
pub fn received_from(fd: &OwnedFd) -> io::Result<Option<u32>> {
    if get::<i32>(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? != libc::AF_PACKET {
        return Ok(None);
    }
    let mut raw = Address::zeroed();
    let mut length = size_of::<Address>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `raw`; all members are plain integers.
    unsafe {
        let result = libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &mut length);
        checked(result as isize)?;
        Ok((raw.link.sll_protocol != 0).then_some(raw.link.sll_ifindex as u32))
    }
}

/// Packets that a socket had no room for since it was opened (SO_MEMINFO: reading it resets nothing).
pub fn dropped(fd: &OwnedFd) -> io::Result<u32> {
    /// linux/sock_diag.h: SK_MEMINFO_DROPS, the last of SK_MEMINFO_VARS numbers.
    const DROPS: usize = 8;
    get::<[u32; DROPS + 1]>(fd, libc::SOL_SOCKET, libc::SO_MEMINFO).map(|numbers| numbers[DROPS])
}

/// A reference to a process, which stays valid when its number is given to another.
pub fn process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; the descriptor it returns is ours alone.
    unsafe {
        let fd = checked(libc::syscall(libc::SYS_pidfd_open, pid, 0) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A duplicate of a descriptor of another process.
pub fn duplicate(process: &OwnedFd, descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; the descriptor it returns is ours alone.
    unsafe {
        let fd = checked(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Starts to connect a non-blocking socket (or sets a datagram socket's peer).
pub fn connect(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let (raw, length) = Address::new(address);
    // SAFETY: as in `bind`.
    let result = unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), length as libc::socklen_t) };
    match checked(result as isize) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

pub fn local_port(fd: &OwnedFd) -> io::Result<u16> {
    let mut raw = Address::zeroed();
    let mut length = size_of::<Address>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `raw`.
    let result = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &mut length) };
    checked(result as isize)?;
    Ok(raw.get().port())
}

pub fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::listen(fd.as_raw_fd(), backlog) } as isize).map(drop)
}

/// The next connection of a non-blocking listener, and its peer.
pub fn accept(fd: &OwnedFd) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    let mut raw = Address::zeroed();
    let mut length = size_of::<Address>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `raw`; the descriptor is ours alone.
    unsafe {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let result = libc::accept4(fd.as_raw_fd(), (&raw mut raw).cast(), &mut length, flags);
        let fd = ready(checked(result as isize))?;
        Ok(fd.map(|fd| (OwnedFd::from_raw_fd(fd as i32), raw.get())))
    }
}

pub fn shut_down_sending(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) } as isize).map(drop)
}

pub fn send(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is live.
    checked(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) })
}

/// A datagram to whoever is there.
pub fn send_to(fd: &OwnedFd, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
    let (raw, length) = Address::new(to);
    // SAFETY: the slice is live; `raw` lives through the call and has `length` bytes.
    checked(unsafe {
        let address = (&raw const raw).cast();
        let length = length as libc::socklen_t;
        libc::sendto(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL, address, length)
    })
}

/// One whole datagram of a netlink socket; an error where it is larger than any is expected to be.
pub fn receive(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 64 * 1024];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let received =
        unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_TRUNC) };
    let length = checked(received)?;
    if length > bytes.len() {
        return Err(io::Error::other(format!("an answer of {length} bytes")));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// The same where there may be none. ENOBUFS says that some were lost.
pub fn receive_waiting(fd: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; 64 * 1024];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let received = checked(unsafe {
        libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
    });
    Ok(ready(received)?.map(|length| {
        bytes.truncate(length);
        bytes
    }))
}

/// Most bytes that one `send_pattern` offers to the kernel.
pub const PATTERN_MAX: usize = 1 << 20;
/// Of the guest's module qbulk (kernel/include/uapi/qbed/qbulk.h), where the plan has it.
static BULK: LazyLock<Option<File>> = LazyLock::new(|| File::open("/dev/qbulk").ok());
nix::ioctl_write_ptr!(qbulk_send, b'q', 1, BulkSend);

/// `struct qbulk_send`.
#[repr(C)]
pub struct BulkSend {
    socket: i32,
    bytes: u32,
    more: u32,
}

/// Offers `length` bytes (at most PATTERN_MAX) of payload; None where the buffer is full. `more` follows at once, so
/// the kernel need not send a last, short segment yet. With qbulk nothing is copied.
pub fn send_pattern(fd: &OwnedFd, length: usize, more: bool) -> io::Result<Option<usize>> {
    let Some(bulk) = &*BULK else { return send_blocks(fd, length, more) };
    let wish = BulkSend { socket: fd.as_raw_fd(), bytes: length.min(PATTERN_MAX) as u32, more: more.into() };
    // SAFETY: the kernel reads `wish`.
    let taken = unsafe { qbulk_send(bulk.as_raw_fd(), &raw const wish) };
    ready(taken.map(|bytes| bytes as usize).map_err(io::Error::from))
}

/// What flows carry: the same small block again and again, so that it stays in the processor's first cache.
const BLOCK_LEN: usize = 16 * 1024;
const BLOCKS_MAX: usize = PATTERN_MAX / BLOCK_LEN;
static BLOCK: [u8; BLOCK_LEN] = [0x71; BLOCK_LEN];

/// `send_pattern` without qbulk.
fn send_blocks(fd: &OwnedFd, length: usize, more: bool) -> io::Result<Option<usize>> {
    let block = libc::iovec { iov_base: BLOCK.as_ptr().cast_mut().cast(), iov_len: BLOCK_LEN };
    let mut blocks = [block; BLOCKS_MAX];
    let count = length.clamp(1, PATTERN_MAX).div_ceil(BLOCK_LEN);
    blocks[count - 1].iov_len = length.min(PATTERN_MAX) - (count - 1) * BLOCK_LEN;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the message points at `blocks`, and they at BLOCK, which the kernel only reads.
    unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = blocks.as_mut_ptr();
        message.msg_iovlen = count;
        ready(checked(libc::sendmsg(fd.as_raw_fd(), &message, flags)))
    }
}

/// Takes what a TCP socket holds without copying it; None where there is nothing yet, 0 at the end of the stream.
pub fn discard(fd: &OwnedFd) -> io::Result<Option<usize>> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC, TCP drops the bytes instead of writing them (tcp(7)).
    ready(checked(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 1 << 30, flags) }))
}

/// The same, but of so many bytes at most.
pub fn discard_at_most(fd: &OwnedFd, most: u64) -> io::Result<Option<usize>> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    let length = most.min(1 << 30) as usize;
    // SAFETY: as in `discard`.
    ready(checked(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), length, flags) }))
}

/// Takes what a TCP socket holds, as far as it fits; None where there is nothing yet, 0 at the end of the stream.
pub fn take(fd: &OwnedFd, into: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the slice is live, and the kernel writes no more than fits.
    ready(checked(unsafe {
        libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT)
    }))
}

/// Offers bytes to a TCP socket; None where its buffer is full. `more` follows at once.
pub fn offer(fd: &OwnedFd, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the slice is live.
    ready(checked(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) }))
}

/// Bytes that a TCP socket holds in order, and that nobody has taken.
pub fn waiting(fd: &OwnedFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int (tcp(7), SIOCINQ).
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) } as isize)?;
    Ok(bytes.try_into().unwrap_or(0))
}

/// A datagram or frame that `Inbox` received.
pub struct Datagram<'a> {
    pub bytes: &'a [u8],
    /// Its length on the wire (`bytes` may have been cut).
    pub length: usize,
    pub from: SocketAddr,
    /// CLOCK_REALTIME at its arrival, if the socket asked for it (SO_TIMESTAMPNS).
    pub time_ns: u64,
}

/// Buffers for `recvmmsg`.
pub struct Inbox {
    snaplen: usize,
    bytes: Vec<u8>,
    addresses: Vec<Address>,
    /// Room for one SCM_TIMESTAMPNS message each.
    controls: Vec<[u64; 8]>,
}

const INBOX_LEN: usize = 128;

impl Inbox {
    pub fn new(snaplen: usize) -> Self {
        Self {
            snaplen,
            bytes: vec![0; snaplen * INBOX_LEN],
            addresses: vec![Address::zeroed(); INBOX_LEN],
            controls: vec![[0; 8]; INBOX_LEN],
        }
    }

    /// Hands everything that waits in the socket to `each`.
    pub fn drain(&mut self, fd: &OwnedFd, mut each: impl FnMut(Datagram<'_>)) -> io::Result<()> {
        loop {
            let count = self.receive(fd, &mut each)?;
            if count < INBOX_LEN {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, fd: &OwnedFd, each: &mut impl FnMut(Datagram<'_>)) -> io::Result<usize> {
        let chunks = self.bytes.chunks_mut(self.snaplen);
        let mut vectors: Vec<libc::iovec> = chunks
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() })
            .collect();
        // SAFETY: every header points at its own live buffers with their lengths; a zeroed header is valid.
        let mut headers: Vec<libc::mmsghdr> = (0..INBOX_LEN)
            .map(|i| unsafe {
                let mut header: libc::mmsghdr = MaybeUninit::zeroed().assume_init();
                header.msg_hdr.msg_name = (&raw mut self.addresses[i]).cast();
                header.msg_hdr.msg_namelen = size_of::<Address>() as libc::socklen_t;
                header.msg_hdr.msg_iov = &raw mut vectors[i];
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = (&raw mut self.controls[i]).cast();
                header.msg_hdr.msg_controllen = size_of::<[u64; 8]>() as _;
                header
            })
            .collect();
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: as above, and the kernel fills at most INBOX_LEN headers.
        let result = unsafe {
            let nobody_waits = std::ptr::null_mut();
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), INBOX_LEN as u32, flags, nobody_waits)
        };
        let count = ready(checked(result as isize))?.unwrap_or(0);
        for (i, header) in headers[..count].iter().enumerate() {
            let length = header.msg_len as usize;
            let start = i * self.snaplen;
            each(Datagram {
                bytes: &self.bytes[start..start + length.min(self.snaplen)],
                length,
                from: self.addresses[i].get(),
                time_ns: arrival_ns(&header.msg_hdr),
            });
        }
        Ok(count)
    }
}

fn arrival_ns(header: &libc::msghdr) -> u64 {
    // SAFETY: the header was filled by recvmmsg and its control buffer is live; the macros stay within it.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        if first.is_null() || (*first).cmsg_type != libc::SCM_TIMESTAMPNS {
            return 0;
        }
        let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(first).cast());
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
