// SPDX-License-Identifier: Apache-2.0
//! Safe wrappers of socket system calls that the standard library does not offer.

use std::fs::File;
use std::io;
use std::mem::{size_of, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::LazyLock;

/// Plain old data: option values for which every bit pattern is valid.
pub trait Pod: Copy {}
impl Pod for i32 {}
impl Pod for u32 {}
impl Pod for libc::packet_mreq {}
impl Pod for libc::tpacket_stats {}
impl<T: Pod, const N: usize> Pod for [T; N] {}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Maps EAGAIN to None.
fn unless_blocking<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a socket in the thread's current network namespace.
pub fn open(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; nothing else owns the returned descriptor.
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

pub fn set<T: Pod>(fd: &OwnedFd, level: i32, name: i32, value: T) -> io::Result<()> {
    set_bytes(fd, level, name, (&raw const value).cast(), size_of::<T>())
}

pub fn set_text(fd: &OwnedFd, level: i32, name: i32, value: &str) -> io::Result<()> {
    set_bytes(fd, level, name, value.as_ptr().cast(), value.len())
}

/// Reads an option. Bytes that an older kernel does not fill are zero.
pub fn get<T: Pod>(fd: &OwnedFd, level: i32, name: i32) -> io::Result<T> {
    get_with_length(fd, level, name).map(|(value, _)| value)
}

/// Reads an option and the number of bytes that the kernel has filled.
pub fn get_with_length<T: Pod>(fd: &OwnedFd, level: i32, name: i32) -> io::Result<(T, usize)> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes; every bit pattern of a Pod type is valid.
    unsafe {
        let result = libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length);
        checked(result as isize)?;
        Ok((value.assume_init(), length as usize))
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

/// A socket address in the kernel's layout.
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

    fn to_socket_addr(self) -> SocketAddr {
        // SAFETY: the kernel has filled the member that belongs to the family; all members are plain integers.
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
    // SAFETY: all members are plain integers; the call gets the length of the member that is set.
    let result = unsafe {
        raw.link.sll_family = libc::AF_PACKET as libc::sa_family_t;
        raw.link.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        raw.link.sll_ifindex = ifindex as i32;
        libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    checked(result as isize).map(drop)
}

/// Binds a netlink socket to an address that the kernel chooses. Only bound sockets receive notifications.
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

/// The interface index that a packet socket is bound to. None for other sockets, and for packet sockets that receive
/// nothing.
pub fn bound_interface(fd: &OwnedFd) -> io::Result<Option<u32>> {
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

/// Number of packets that a socket has dropped because its receive buffer was full. SO_MEMINFO does not reset it.
pub fn dropped_packets(fd: &OwnedFd) -> io::Result<u32> {
    /// linux/sock_diag.h: SK_MEMINFO_DROPS, the last of SK_MEMINFO_VARS numbers.
    const DROPS: usize = 8;
    get::<[u32; DROPS + 1]>(fd, libc::SOL_SOCKET, libc::SO_MEMINFO).map(|numbers| numbers[DROPS])
}

/// Opens a pidfd, which refers to the same process even if its id is reused.
pub fn open_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; nothing else owns the returned descriptor.
    unsafe {
        let fd = checked(libc::syscall(libc::SYS_pidfd_open, pid, 0) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Duplicates a descriptor of another process.
pub fn duplicate(process: &OwnedFd, descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; nothing else owns the returned descriptor.
    unsafe {
        let fd = checked(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Starts connecting a non-blocking socket, or sets the peer of a datagram socket.
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
    Ok(raw.to_socket_addr().port())
}

pub fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::listen(fd.as_raw_fd(), backlog) } as isize).map(drop)
}

/// Accepts the next connection of a non-blocking listener. Returns its socket and peer address.
pub fn accept(fd: &OwnedFd) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    let mut raw = Address::zeroed();
    let mut length = size_of::<Address>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `raw`; nothing else owns the descriptor.
    unsafe {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let result = libc::accept4(fd.as_raw_fd(), (&raw mut raw).cast(), &mut length, flags);
        let fd = unless_blocking(checked(result as isize))?;
        Ok(fd.map(|fd| (OwnedFd::from_raw_fd(fd as i32), raw.to_socket_addr())))
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

/// Sends a datagram to an address.
pub fn send_to(fd: &OwnedFd, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
    let (raw, length) = Address::new(to);
    // SAFETY: the slice is live; `raw` lives through the call and has `length` bytes.
    checked(unsafe {
        let address = (&raw const raw).cast();
        let length = length as libc::socklen_t;
        libc::sendto(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL, address, length)
    })
}

/// Receives one datagram of a netlink socket. Fails if it is larger than 64 KiB.
pub fn receive(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 64 * 1024];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let received =
        unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_TRUNC) };
    let length = checked(received)?;
    if length > bytes.len() {
        return Err(io::Error::other(format!("a reply of {length} bytes")));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Receives one datagram of a netlink socket without blocking. ENOBUFS: notifications were lost.
pub fn try_receive(fd: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; 64 * 1024];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let received = checked(unsafe {
        libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
    });
    Ok(unless_blocking(received)?.map(|length| {
        bytes.truncate(length);
        bytes
    }))
}

/// Limit on the bytes of one `send_pattern`.
pub const PATTERN_MAX: usize = 1 << 20;
/// Device of the kernel module qbulk (kernel/include/uapi/qbed/qbulk.h). None if the plan does not load it.
static BULK: LazyLock<Option<File>> = LazyLock::new(|| File::open("/dev/qbulk").ok());
nix::ioctl_write_ptr!(qbulk_send, b'q', 1, BulkSend);

/// `struct qbulk_send`.
#[repr(C)]
pub struct BulkSend {
    socket: i32,
    bytes: u32,
    more: u32,
}

/// Sends up to `length` bytes (at most PATTERN_MAX) of payload and returns how many were accepted; None if the send
/// buffer is full. `more`: more payload follows, so that the kernel holds back a short last segment. qbulk avoids the
/// copy.
pub fn send_pattern(fd: &OwnedFd, length: usize, more: bool) -> io::Result<Option<usize>> {
    let Some(bulk) = &*BULK else { return send_blocks(fd, length, more) };
    let request =
        BulkSend { socket: fd.as_raw_fd(), bytes: length.min(PATTERN_MAX) as u32, more: more.into() };
    // SAFETY: the kernel reads `request`.
    let accepted = unsafe { qbulk_send(bulk.as_raw_fd(), &raw const request) };
    unless_blocking(accepted.map(|bytes| bytes as usize).map_err(io::Error::from))
}

/// Payload of flows: one small block repeated, so that it stays in the L1 cache.
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
    // SAFETY: the message points to `blocks`, which point to BLOCK; the kernel only reads them.
    unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = blocks.as_mut_ptr();
        message.msg_iovlen = count;
        unless_blocking(checked(libc::sendmsg(fd.as_raw_fd(), &message, flags)))
    }
}

/// Discards all bytes that a TCP socket has received. Returns their number; None if there are none, 0 at the end of the
/// stream.
pub fn discard(fd: &OwnedFd) -> io::Result<Option<usize>> {
    discard_up_to(fd, u64::MAX)
}

/// Discards at most `limit` received bytes of a TCP socket. Returns as `discard`.
pub fn discard_up_to(fd: &OwnedFd, limit: u64) -> io::Result<Option<usize>> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    let length = limit.min(1 << 30) as usize;
    // SAFETY: with MSG_TRUNC, TCP drops the bytes instead of writing them (tcp(7)).
    unless_blocking(checked(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), length, flags) }))
}

/// Reads received bytes of a TCP socket. Returns their number; None if there are none, 0 at the end of the stream.
pub fn read(fd: &OwnedFd, into: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the slice is live, and the kernel writes at most its length.
    unless_blocking(checked(unsafe {
        libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT)
    }))
}

/// Writes bytes to a TCP socket and returns how many were accepted; None if the send buffer is full. `more`: more bytes
/// follow.
pub fn write(fd: &OwnedFd, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the slice is live.
    unless_blocking(checked(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) }))
}

/// Number of in-order bytes in a TCP socket's receive buffer.
pub fn unread_bytes(fd: &OwnedFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int (tcp(7), SIOCINQ).
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) } as isize)?;
    Ok(bytes.try_into().unwrap_or(0))
}

/// A datagram or frame of a `ReceiveBatch`.
pub struct Datagram<'a> {
    pub bytes: &'a [u8],
    /// Length before truncation to the snap length.
    pub length: usize,
    pub from: SocketAddr,
    /// CLOCK_REALTIME at arrival if the socket has SO_TIMESTAMPNS, else 0.
    pub time_ns: u64,
}

/// Buffers for `recvmmsg`.
pub struct ReceiveBatch {
    snaplen: usize,
    bytes: Vec<u8>,
    addresses: Vec<Address>,
    /// Control buffers, each for one SCM_TIMESTAMPNS message.
    controls: Vec<[u64; 8]>,
}

const BATCH_LEN: usize = 128;

impl ReceiveBatch {
    pub fn new(snaplen: usize) -> Self {
        Self {
            snaplen,
            bytes: vec![0; snaplen * BATCH_LEN],
            addresses: vec![Address::zeroed(); BATCH_LEN],
            controls: vec![[0; 8]; BATCH_LEN],
        }
    }

    /// Receives all datagrams in the socket and passes them to `each`.
    pub fn drain(&mut self, fd: &OwnedFd, mut each: impl FnMut(Datagram<'_>)) -> io::Result<()> {
        loop {
            let count = self.receive(fd, &mut each)?;
            if count < BATCH_LEN {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, fd: &OwnedFd, each: &mut impl FnMut(Datagram<'_>)) -> io::Result<usize> {
        let chunks = self.bytes.chunks_mut(self.snaplen);
        let mut vectors: Vec<libc::iovec> = chunks
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() })
            .collect();
        // SAFETY: every header points to live buffers with their lengths; a zeroed header is valid.
        let mut headers: Vec<libc::mmsghdr> = (0..BATCH_LEN)
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
        // SAFETY: as above, and the kernel fills at most BATCH_LEN headers.
        let result = unsafe {
            let no_timeout = std::ptr::null_mut();
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), BATCH_LEN as u32, flags, no_timeout)
        };
        let count = unless_blocking(checked(result as isize))?.unwrap_or(0);
        for (i, header) in headers[..count].iter().enumerate() {
            let length = header.msg_len as usize;
            let start = i * self.snaplen;
            each(Datagram {
                bytes: &self.bytes[start..start + length.min(self.snaplen)],
                length,
                from: self.addresses[i].to_socket_addr(),
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
