// SPDX-License-Identifier: Apache-2.0
//! `struct tcp_info` of Linux 6.7 and later (include/uapi/linux/tcp.h), and its values in the results.

use crate::results::flow_samples::Values;
use crate::results::flows::SenderCounters;
use crate::socket::{self, Pod};
use std::io;
use std::os::fd::OwnedFd;

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct TcpInfo {
    pub state: u8,
    pub ca_state: u8,
    _retransmits: u8,
    _probes: u8,
    _backoff: u8,
    options: u8,
    _window_scales: u8,
    _flags: u8,
    _rto_us: u32,
    _ato_us: u32,
    _snd_mss: u32,
    _rcv_mss: u32,
    _unacked: u32,
    _sacked: u32,
    _lost: u32,
    _retrans: u32,
    _fackets: u32,
    _last_data_sent_ms: u32,
    _last_ack_sent_ms: u32,
    _last_data_recv_ms: u32,
    _last_ack_recv_ms: u32,
    _pmtu: u32,
    _rcv_ssthresh: u32,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    _advmss: u32,
    _reordering: u32,
    _rcv_rtt_us: u32,
    _rcv_space: u32,
    pub total_retrans: u32,
    pub pacing_rate: u64,
    _max_pacing_rate: u64,
    pub bytes_acked: u64,
    _bytes_received: u64,
    pub segs_out: u32,
    _segs_in: u32,
    _notsent_bytes: u32,
    pub min_rtt_us: u32,
    _data_segs_in: u32,
    _data_segs_out: u32,
    pub delivery_rate: u64,
    _busy_time_us: u64,
    _rwnd_limited_us: u64,
    _sndbuf_limited_us: u64,
    _delivered: u32,
    pub delivered_ce: u32,
    _bytes_sent: u64,
    _bytes_retrans: u64,
    _dsack_dups: u32,
    _reord_seen: u32,
    _rcv_ooopack: u32,
    _snd_wnd: u32,
    _rcv_wnd: u32,
    _rehash: u32,
    pub total_rto: u16,
    _total_rto_recoveries: u16,
    _total_rto_time_ms: u32,
}

impl Pod for TcpInfo {}

const TCPI_OPT_ECN: u8 = 8;
/// TCP_INFINITE_SSTHRESH: slow start has not ended yet.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// `tcpi_min_rtt` before the first sample.
const NO_RTT: u32 = u32::MAX;

impl TcpInfo {
    pub fn read(fd: &OwnedFd) -> io::Result<Self> {
        socket::get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
    }

    pub fn ecn(&self) -> bool {
        self.options & TCPI_OPT_ECN != 0
    }

    pub fn ssthresh(&self) -> Option<u32> {
        (self.snd_ssthresh < INFINITE_SSTHRESH).then_some(self.snd_ssthresh)
    }

    pub fn min_rtt_ns(&self) -> Option<u64> {
        (self.min_rtt_us != NO_RTT).then(|| u64::from(self.min_rtt_us) * 1000)
    }

    pub fn rtt_ns(&self) -> Option<u64> {
        (self.rtt_us != 0).then(|| u64::from(self.rtt_us) * 1000)
    }

    /// None if the sender does not pace.
    pub fn pacing_bps(&self) -> Option<u64> {
        self.pacing_rate.checked_mul(8)
    }

    /// The values of a flow sample.
    pub fn sample(&self) -> Values {
        [
            Some(self.snd_cwnd.into()),
            self.ssthresh().map(u64::from),
            self.rtt_ns(),
            Some(u64::from(self.rttvar_us) * 1000),
            Some(self.delivery_rate.saturating_mul(8)),
            self.pacing_bps(),
            Some(self.bytes_acked),
            Some(self.total_retrans.into()),
            Some(self.delivered_ce.into()),
            Some(self.ca_state.into()),
        ]
    }
}

impl From<TcpInfo> for SenderCounters {
    fn from(info: TcpInfo) -> Self {
        Self {
            retransmits: info.total_retrans,
            timeouts: info.total_rto,
            ce_marks: info.delivered_ce,
            segments_sent: info.segs_out.into(),
            min_rtt_ns: info.min_rtt_ns(),
            rtt_ns: info.rtt_ns(),
            ecn: info.ecn(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::net::{TcpListener, TcpStream};

    const TCP_CA_OPEN: u8 = 0;

    /// Offsets of the kernel's structure.
    #[test]
    fn the_layout_matches_the_kernel() {
        let offsets = [
            (offset_of!(TcpInfo, rtt_us), 68),
            (offset_of!(TcpInfo, total_retrans), 100),
            (offset_of!(TcpInfo, pacing_rate), 104),
            (offset_of!(TcpInfo, segs_out), 136),
            (offset_of!(TcpInfo, delivery_rate), 160),
            (offset_of!(TcpInfo, delivered_ce), 196),
            (offset_of!(TcpInfo, total_rto), 240),
            (size_of::<TcpInfo>(), 248),
        ];
        assert!(offsets.iter().all(|(actual, expected)| actual == expected), "{offsets:?}");
    }

    #[test]
    fn a_new_connection_has_no_losses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::read(&OwnedFd::from(stream)).unwrap();
        assert_eq!((info.total_retrans, info.total_rto, info.ca_state), (0, 0, TCP_CA_OPEN));
        assert_eq!((info.ssthresh(), info.sample()[1]), (None, None));
        assert!(info.segs_out >= 2 && info.min_rtt_ns().is_some());
    }
}
