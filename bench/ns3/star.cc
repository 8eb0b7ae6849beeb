// SPDX-License-Identifier: Apache-2.0
// The peer of bench/versus_ns3: hosts around a switch, each link 10 Gb/s and 5 us, a drop-tail buffer at the switch's
// ports. Host i sends TCP Cubic to the host half-way round, simulated by ns-3. Prints what it did as one JSON line.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/nix-vector-routing-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>

using namespace ns3;

int main(int argc, char *argv[])
{
    uint32_t hosts = 2, flows = 1;
    uint64_t bytes = 100'000'000;
    std::string buffer = "128000B";
    double spread_us = 0;
    bool nix = false;
    CommandLine command;
    command.AddValue("hosts", "hosts around the switch", hosts);
    command.AddValue("flows", "how many of them send", flows);
    command.AddValue("bytes", "bytes that each of those sends", bytes);
    command.AddValue("buffer", "of each port of the switch", buffer);
    command.AddValue("spread", "us in which the flows start, uniformly", spread_us);
    command.AddValue("nix", "nix-vector routes instead of tables", nix);
    command.Parse(argc, argv);

    // Linux's defaults where those of ns-3 differ: segment size, initial window, SACK and time stamps are on in both.
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));

    NodeContainer around(hosts), middle(1);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    if (nix)
    {
        stack.SetRoutingHelper(Ipv4NixVectorHelper());
    }
    stack.Install(around);
    stack.Install(middle);

    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    link.SetChannelAttribute("Delay", StringValue("5us"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000p"));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    TrafficControlHelper control;
    std::vector<Ipv4Address> address;
    for (uint32_t i = 0; i < hosts; i++)
    {
        NetDeviceContainer ends = link.Install(around.Get(i), middle.Get(0));
        DynamicCast<PointToPointNetDevice>(ends.Get(1))->GetQueue()->SetMaxSize(QueueSize(buffer));
        address.push_back(addresses.Assign(ends).GetAddress(0));
        addresses.NewNetwork();
        // The device's own queue is the buffer; ns-3 would put a FqCoDel above it.
        control.Uninstall(ends);
    }
    if (!nix)
    {
        Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    }

    uint64_t received = 0;
    Time end;
    Callback<void, Ptr<const Packet>, const Address &> on_receipt([&](Ptr<const Packet> packet, const Address &) {
        received += packet->GetSize();
        if (received == flows * bytes)
        {
            end = Simulator::Now();
            Simulator::Stop();
        }
    });
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
    Ptr<UniformRandomVariable> within = CreateObject<UniformRandomVariable>();
    for (uint32_t i = 0; i < flows; i++)
    {
        uint32_t to = (i + hosts / 2) % hosts;
        ApplicationContainer receiver = sink.Install(around.Get(to));
        receiver.Start(Seconds(0));
        receiver.Get(0)->TraceConnectWithoutContext("Rx", on_receipt);
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(address[to], 5001));
        bulk.SetAttribute("MaxBytes", UintegerValue(bytes));
        bulk.SetAttribute("SendSize", UintegerValue(65536));
        bulk.Install(around.Get(i)).Start(NanoSeconds(within->GetInteger(0, spread_us * 1000)));
    }

    Simulator::Stop(Seconds(60));
    Simulator::Run();
    std::cout << "{\"received_bytes\": " << received << ", \"end_ns\": " << end.GetNanoSeconds() << "}" << std::endl;
    Simulator::Destroy();
    return received == flows * bytes ? 0 : 1;
}
