// SPDX-License-Identifier: Apache-2.0
// The incast of the ABQ paper in ns-3: senders around a switch start a flow each to one receiver, at the same instant.
// The settings are those of the paper's published simulator, in so far as this ns-3 has them (labs/incast/README.md). For
// bench/incast_ns3; prints what it did as one JSON line.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <iostream>
#include <map>

using namespace ns3;

static std::map<Ipv4Address, uint64_t> received;
static std::vector<int64_t> completed_ns;
static uint64_t dropped, timeouts;
static uint32_t smallest_window = UINT32_MAX;

static void OnWindow(uint32_t, uint32_t bytes)
{
    smallest_window = std::min(smallest_window, bytes);
}

static void OnState(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t state)
{
    timeouts += state == TcpSocketState::CA_LOSS;
}

/// A socket has no name before its application starts.
static void Watch(Ptr<BulkSendApplication> sender)
{
    Ptr<Socket> socket = sender->GetSocket();
    socket->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&OnWindow));
    socket->TraceConnectWithoutContext("CongState", MakeCallback(&OnState));
}

static void Settings(const std::string &scheme, uint32_t min_rto_ms, uint32_t segment)
{
    const bool marks = scheme != "droptail";
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(marks ? TcpDctcp::GetTypeId() : TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(marks ? "On" : "Off"));
    Config::SetDefault("ns3::TcpDctcp::DctcpAlphaOnInit", DoubleValue(0));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(min_rto_ms)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(MilliSeconds(min_rto_ms)));
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(20));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(MilliSeconds(min_rto_ms)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(128 << 10));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(128 << 10));
}

/// Marks as a step where the length is at least `threshold`: RED without an average and without a slope.
static TrafficControlHelper Marking(uint32_t packets, uint32_t threshold)
{
    TrafficControlHelper control;
    control.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize", QueueSizeValue(QueueSize(PACKETS, packets)), "MinTh",
                             DoubleValue(threshold), "MaxTh", DoubleValue(threshold), "QW", DoubleValue(1), "Gentle", BooleanValue(false),
                             "UseEcn", BooleanValue(true), "UseHardDrop", BooleanValue(false), "LinkBandwidth", StringValue("1Gbps"));
    return control;
}

static double Quantile(const std::vector<int64_t> &sorted, double share)
{
    double at = share * (sorted.size() - 1);
    size_t low = at;
    size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

int main(int argc, char *argv[])
{
    uint32_t senders = 80, bytes = 32768, packets = 80, threshold = 40, min_rto_ms = 10, segment = 1446;
    std::string scheme = "droptail";
    CommandLine command;
    command.AddValue("scheme", "droptail (NewReno) or ecn (DCTCP)", scheme);
    command.AddValue("senders", "how many", senders);
    command.AddValue("bytes", "of each flow", bytes);
    command.AddValue("packets", "of 1500 B that the receiver's port holds", packets);
    command.AddValue("threshold", "of ecn, in packets", threshold);
    command.AddValue("min-rto", "least, first and the connection's RTO, in ms", min_rto_ms);
    command.AddValue("segment", "bytes of payload", segment);
    command.Parse(argc, argv);
    Settings(scheme, min_rto_ms, segment);

    NodeContainer around(senders + 1), middle(1);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(around);
    stack.Install(middle);

    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    link.SetChannelAttribute("Delay", StringValue("40us"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000p"));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    TrafficControlHelper control;
    Ipv4Address receiver;
    for (uint32_t i = 0; i <= senders; i++)
    {
        NetDeviceContainer ends = link.Install(around.Get(i), middle.Get(0));
        Ptr<NetDevice> port = ends.Get(1);
        Ptr<Queue<Packet>> queue = DynamicCast<PointToPointNetDevice>(port)->GetQueue();
        if (i == 0 && scheme == "ecn")
        {
            // The device holds one of the packets, so that the discipline sees the others.
            queue->SetMaxSize(QueueSize("1p"));
            QueueDiscContainer disciplines = Marking(packets - 1, threshold).Install(port);
            disciplines.Get(0)->TraceConnectWithoutContext(
                "Drop", Callback<void, Ptr<const QueueDiscItem>>([](Ptr<const QueueDiscItem>) { dropped++; }));
        }
        else if (i == 0)
        {
            queue->SetMaxSize(QueueSize(BYTES, packets * 1500));
        }
        Ipv4InterfaceContainer assigned = addresses.Assign(ends);
        receiver = i == 0 ? assigned.GetAddress(0) : receiver;
        addresses.NewNetwork();
        // Without a discipline of ours the device's own queue is the buffer; ns-3 would put a FqCoDel above it.
        control.Uninstall(i == 0 && scheme == "ecn" ? NetDeviceContainer(ends.Get(0)) : ends);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    // If a port has no queue discipline, packets are dropped in front of the full queue of its device.
    middle.Get(0)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext(
        "TcDrop", Callback<void, Ptr<const Packet>>([](Ptr<const Packet>) { dropped++; }));

    const Time start = MilliSeconds(10);
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
    ApplicationContainer sinks = sink.Install(around.Get(0));
    sinks.Get(0)->TraceConnectWithoutContext(
        "Rx", Callback<void, Ptr<const Packet>, const Address &>([&](Ptr<const Packet> packet, const Address &from) {
            uint64_t &total = received[InetSocketAddress::ConvertFrom(from).GetIpv4()];
            total += packet->GetSize();
            if (total == bytes)
            {
                completed_ns.push_back((Simulator::Now() - start).GetNanoSeconds());
            }
        }));
    for (uint32_t i = 1; i <= senders; i++)
    {
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(receiver, 5001));
        bulk.SetAttribute("MaxBytes", UintegerValue(bytes));
        bulk.SetAttribute("SendSize", UintegerValue(bytes));
        ApplicationContainer sender = bulk.Install(around.Get(i));
        sender.Start(start);
        Simulator::Schedule(start + NanoSeconds(1), &Watch, DynamicCast<BulkSendApplication>(sender.Get(0)));
    }

    Simulator::Stop(Seconds(20));
    Simulator::Run();
    Simulator::Destroy();
    std::sort(completed_ns.begin(), completed_ns.end());
    if (completed_ns.size() != senders)
    {
        std::cerr << completed_ns.size() << " of " << senders << " flows ended" << std::endl;
        return 1;
    }
    std::cout << "{\"scheme\": \"" << scheme << "\", \"senders\": " << senders << ", \"p1_ms\": " << Quantile(completed_ns, 0.01) / 1e6
              << ", \"p50_ms\": " << Quantile(completed_ns, 0.5) / 1e6 << ", \"p99_ms\": " << Quantile(completed_ns, 0.99) / 1e6
              << ", \"goodput_mbps\": " << 8e3 * bytes * senders / completed_ns.back() << ", \"drops\": " << dropped
              << ", \"timeouts\": " << timeouts << ", \"smallest_window_bytes\": " << smallest_window << "}" << std::endl;
    return 0;
}
