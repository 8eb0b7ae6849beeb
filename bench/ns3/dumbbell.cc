// SPDX-License-Identifier: Apache-2.0
// The peer of bench/virtual_vs_ns3: one TCP Cubic flow of 100 MB through h1 - s1 - h2, both links 10 Gb/s and 5 us,
// a 128 KB drop-tail buffer at the switch, simulated by ns-3. Prints what it did as one JSON line.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>

using namespace ns3;

int main(int argc, char *argv[])
{
    uint64_t bytes = 100'000'000;
    CommandLine command;
    command.AddValue("bytes", "bytes to send", bytes);
    command.Parse(argc, argv);

    // What Linux does by default, where ns-3's defaults differ: segment size, initial window, SACK and time stamps are on in both.
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));

    NodeContainer nodes(3);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    link.SetChannelAttribute("Delay", StringValue("5us"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000p"));
    NetDeviceContainer left = link.Install(nodes.Get(0), nodes.Get(1));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("128000B"));
    NetDeviceContainer right = link.Install(nodes.Get(1), nodes.Get(2));

    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.1.0", "255.255.255.0");
    addresses.Assign(left);
    addresses.SetBase("10.0.2.0", "255.255.255.0");
    Ipv4InterfaceContainer receivers = addresses.Assign(right);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    // The device's own queue is the buffer; ns-3 would put a FqCoDel above it.
    TrafficControlHelper control;
    control.Uninstall(left);
    control.Uninstall(right);

    InetSocketAddress sinkAddress(receivers.GetAddress(1), 5001);
    BulkSendHelper bulk("ns3::TcpSocketFactory", sinkAddress);
    bulk.SetAttribute("MaxBytes", UintegerValue(bytes));
    bulk.SetAttribute("SendSize", UintegerValue(65536));
    bulk.Install(nodes.Get(0)).Start(Seconds(0));
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
    ApplicationContainer sinks = sink.Install(nodes.Get(2));
    sinks.Start(Seconds(0));

    Ptr<PacketSink> receiver = DynamicCast<PacketSink>(sinks.Get(0));
    Time end;
    receiver->TraceConnectWithoutContext("Rx", Callback<void, Ptr<const Packet>, const Address &>(
        [&](Ptr<const Packet>, const Address &) {
            if (receiver->GetTotalRx() == bytes)
            {
                end = Simulator::Now();
                Simulator::Stop();
            }
        }));
    Simulator::Stop(Seconds(60));
    Simulator::Run();
    std::cout << "{\"received_bytes\": " << receiver->GetTotalRx() << ", \"end_ns\": " << end.GetNanoSeconds() << "}" << std::endl;
    bool whole = receiver->GetTotalRx() == bytes;
    Simulator::Destroy();
    return whole ? 0 : 1;
}
