// `ingot doctor` on device trees and logs: what halves the speed of links is named with its remedy, and what
// is well is not.
#include <gtest/gtest.h>

#include <filesystem>

#include "measure/doctor.h"
#include "measure/doctor_log.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::doctor_devices_test {

void plant(const TempDir& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(root / path).parent_path());
  write_text(root / path, text + "\n");
}

struct Device {
  const char* address;
  const char* type;  ///< its class
  int width, full, node;
};
void plant(const TempDir& root, const Device& d) {
  const std::string folder = std::string("sys/bus/pci/devices/") + d.address + "/";
  plant(root, folder + "class", d.type);
  plant(root, folder + "vendor", "0x10de");
  plant(root, folder + "current_link_width", std::to_string(d.width));
  plant(root, folder + "max_link_width", std::to_string(d.full));
  plant(root, folder + "current_link_speed", "16.0 GT/s PCIe");
  plant(root, folder + "numa_node", std::to_string(d.node));
}
constexpr const char kAccelerator[] = "0x030200", kInfiniBand[] = "0x020700", kEthernet[] = "0x020000",
                     kVga[] = "0x030000", kDrive[] = "0x010802";

/// Two sockets, each with an accelerator, an adapter and a drive, all as they should be.
void plant_host(const TempDir& root) {
  plant(root, "sys/devices/system/node/online", "0-1");
  plant(root, "sys/devices/system/node/node0/distance", "10 32");
  plant(root, "sys/devices/system/node/node1/distance", "32 10");
  for (const Device& d : {Device{"0000:10:00.0", kAccelerator, 16, 16, 0},
                          {"0000:11:00.0", kInfiniBand, 16, 16, 0},
                          {"0000:12:00.0", kDrive, 4, 4, 0},
                          {"0000:90:00.0", kAccelerator, 16, 16, 1},
                          {"0000:91:00.0", kInfiniBand, 16, 16, 1},
                          {"0000:92:00.0", kEthernet, 8, 8, 0},
                          {"0000:01:00.0", kVga, 1, 16, 0}})
    plant(root, d);
}

std::vector<Finding> look(const TempDir& root) {
  DoctorOptions o;
  o.root = root.path(), o.folder = root.path(), o.disk_bytes = 0, o.rates = false;
  return examine(o);
}
Finding find(const std::vector<Finding>& findings, const std::string& topic) {
  for (const Finding& f : findings)
    if (f.topic == topic) return f;
  return {Finding::Level::problem, topic, "there is no such finding", ""};
}

void expect_note(const Finding& f, const std::vector<std::string>& in_text, const std::string& in_remedy) {
  EXPECT_EQ(f.level, Finding::Level::note) << f.topic << ": " << f.text;
  for (const std::string& part : in_text)
    EXPECT_NE(f.text.find(part), std::string::npos) << part << "\n" << f.text;
  EXPECT_NE(f.remedy.find(in_remedy), std::string::npos) << in_remedy << "\n" << f.remedy;
}

TEST(DoctorDevices, AHostAsItShouldBeHasNoNotes) {
  const TempDir root;
  plant_host(root);
  const auto found = look(root);
  EXPECT_EQ(find(found, "link width").level, Finding::Level::ok) << find(found, "link width").text;
  EXPECT_NE(find(found, "link width").text.find("6 devices"), std::string::npos) << "without the console";
  EXPECT_EQ(find(found, "adapter placement").level, Finding::Level::ok)
      << find(found, "adapter placement").text;
  for (const char* absent : {"peer access", "transport", "channels"})
    EXPECT_EQ(find(found, absent).text, "there is no such finding");
}

TEST(DoctorDevices, AMachineWithoutDevicesSaysNothingOfThem) {
  const TempDir root;
  for (const char* topic : {"link width", "adapter placement", "peer access"})
    EXPECT_EQ(find(look(root), topic).text, "there is no such finding") << topic;
}

TEST(DoctorDevices, HalfOfTheLanes) {
  const TempDir root;
  plant_host(root);
  plant(root, Device{"0000:90:00.0", kAccelerator, 8, 16, 1});
  expect_note(find(look(root), "link width"), {"accelerator 0000:90:00.0 has x8 of x16 at 16.0 GT/s PCIe"},
              "slot with all lanes");
}

TEST(DoctorDevices, LinksThatSayNothingAreNotJudged) {
  const TempDir root;
  plant(root, Device{"0000:10:00.1", kInfiniBand, 0, 255, 0});
  EXPECT_EQ(find(look(root), "link width").text, "there is no such finding");
}

TEST(DoctorDevices, AnAdapterOnTheOtherSocket) {
  const TempDir root;
  plant_host(root);
  plant(root, Device{"0000:91:00.0", kInfiniBand, 16, 16, 0});
  expect_note(find(look(root), "adapter placement"),
              {"accelerator 0000:90:00.0 is on domain 1", "0000:11:00.0 on 0 (distance 32)"},
              "bind the ranks");
}

TEST(DoctorDevices, AContainerThatHidesTheTopology) {
  const TempDir root;
  plant_host(root);
  plant(root, Device{"0000:10:00.0", kAccelerator, 16, 16, -1});
  expect_note(find(look(root), "adapter placement"), {"do not say"}, "topology file");
}

TEST(DoctorDevices, PeerAccessThatAVariableSwitchesOff) {
  const TempDir root;
  plant_host(root);
  plant(root, "proc/self/environ", std::string("HOME=/\0NCCL_P2P_DISABLE=1\0NCCL_IB_DISABLE=0\0", 44));
  const auto found = look(root);
  expect_note(find(found, "peer access"), {"NCCL_P2P_DISABLE=1", "through its memory"},
              "unset NCCL_P2P_DISABLE");
  EXPECT_EQ(find(found, "transport").text, "there is no such finding") << "0 switches nothing off";
  const TempDir without;  // accelerators: the variable has no effect
  plant(without, "proc/self/environ", "NCCL_P2P_DISABLE=1");
  EXPECT_EQ(find(look(without), "peer access").text, "there is no such finding");
}

TEST(DoctorDevices, SmallSharedMemoryAndLockedMemory) {
  const TempDir root;
  plant_host(root);
  std::filesystem::create_directories(root / "dev/shm");
  std::filesystem::create_directories(root / "sys/class/infiniband");
  plant(root, "proc/self/mountinfo",
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:90 / /dev/shm rw,nosuid,nodev - tmpfs shm rw,size=65536k,inode64");
  plant(root, "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         65536                65536                bytes     ");
  const auto found = look(root);
  expect_note(find(found, "shared memory"), {"64.0 MiB"}, "--shm-size=1g");
  expect_note(find(found, "locked memory"), {"at most 64.0 KiB"}, "memlock=-1");
  plant(root, "proc/self/limits",
        "Max locked memory         unlimited            unlimited            bytes     ");
  EXPECT_EQ(find(look(root), "locked memory").level, Finding::Level::ok);
}

const std::string kStart = "n1:10:11 [0] NCCL INFO Bootstrap : Using eth0\n";
/// Lines of two hosts with two ranks each.
std::string log_of(const std::string& inside, const std::string& across, int channels) {
  return kStart + "n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via " + inside +
         "\nn1:12:13 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via " + inside +
         "\nn1:12:13 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via " + across +
         "\nn2:14:15 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via " + across +
         "\nn2:16:17 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via " + inside +
         "\nn1:10:11 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p "
         "channels, " +
         std::to_string(channels) + " p2p channels per peer\n";
}
Finding finding(const std::string& text, const std::string& topic) {
  return find(doctor::findings_of_log("job.log", text), topic);
}

TEST(DoctorLog, PeersAndDirectNetworksAreWell) {
  const std::string good = log_of("P2P/CUMEM/read", "NET/IB/0/GDRDMA", 2);
  for (const char* topic : {"peer access", "transport", "channels"})
    EXPECT_EQ(finding(good, topic).level, Finding::Level::ok) << finding(good, topic).text;
  EXPECT_NE(finding(good, "peer access").text.find("3 pairs"), std::string::npos);
}

TEST(DoctorLog, TwoChannelsFallenToOne) {
  expect_note(finding(log_of("P2P/IPC", "NET/IB/0/GDRDMA", 1), "channels"), {"job.log: one channel"},
              "NCCL_NCHANNELS_PER_NET_PEER=2");
}

TEST(DoctorLog, PeerAccessSwitchedOff) {
  const std::string off = "n1:10:11 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n";
  expect_note(finding(off + log_of("SHM/direct/direct", "NET/IB/0/GDRDMA", 2), "peer access"),
              {"ranks 0 -> 1, 1 -> 0, 3 -> 2 exchange through the host's memory"}, "unset NCCL_P2P_DISABLE");
  expect_note(finding(log_of("SHM/direct/direct", "NET/IB/0/GDRDMA", 2), "peer access"), {"0 -> 1"},
              "nvidia-smi");
}

TEST(DoctorLog, RanksOfOneHostThroughTheNetwork) {
  const std::string log = kStart +
                          "n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0\n"
                          "n1:12:13 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [receive] via NET/IB/0\n";
  expect_note(finding(log, "peer access"), {"ranks 0 -> 1 of one host through the network"}, "nvidia-smi");
}

TEST(DoctorLog, NetworksThroughSocketsOrTheHost) {
  expect_note(finding(log_of("P2P/IPC", "NET/Socket/0", 2), "transport"), {"through sockets"},
              "NCCL_IB_DISABLE");
  expect_note(finding(log_of("P2P/IPC", "NET/IB/0", 2), "transport"), {"by way of the host's memory"},
              "nvidia_peermem");
}

TEST(DoctorLog, AMatrixOfPeerAccess) {
  const std::string good = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n  OK  = Status Ok\n";
  EXPECT_EQ(finding(good, "peer access").level, Finding::Level::ok);
  const std::string bad =
      " \t\x1b[4mGPU0\tGPU1\tGPU2\x1b[0m\n GPU0\tX\tOK\tCNS\n GPU1\tOK\tX\tCNS\n GPU2\tCNS\tCNS\tX\n";
  expect_note(finding(bad, "peer access"), {"not between GPU0 with GPU2 and 1 more: the chipset"}, "ACS");
  const std::string off = "\tGPU0\tGPU1\nGPU0\tX\tDR\nGPU1\tDR\tX\n";
  expect_note(finding(off, "peer access"), {"GPU0 with GPU1: the driver's settings switch it off"}, "ACS");
}

TEST(DoctorLog, AnotherFileIsANote) {
  const std::string links = " \tGPU0\tGPU1\n GPU0\tX\tNV18\n GPU1\tNV18\tX\n";  // nvidia-smi topo -m
  expect_note(finding(links, "peer access"), {"job.log: says nothing"}, "topo -p2p r");
  expect_note(finding("hello\n", "peer access"), {"job.log: says nothing"}, "NCCL_DEBUG=INFO");
  expect_note(finding(kStart, "peer access"), {"says nothing about transports"}, "NCCL_DEBUG=INFO");
}

/// Any bytes are findings: what a log is cut off or damaged to.
TEST(DoctorLog, DamagedLogsNeverCrash) {
  const std::string whole = log_of("SHM/direct", "NET/IB/0/GDRDMA", 1) + " \tGPU0\tGPU1\n GPU0\tX\tOK\n\x1b[";
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 21);
    for (const std::string& text : {changed, whole.substr(0, i)})
      for (const Finding& f : doctor::findings_of_log("x", text)) EXPECT_FALSE(f.text.empty());
  }
}

TEST(DoctorCommand, ReadsLogs) {
  const TempDir folder;
  write_text(folder / "job.log", log_of("P2P/IPC", "NET/IB/0/GDRDMA", 1));
  const ProcessResult r =
      run_process({INGOT_BINARY, "doctor", folder.path(), "--disk=0", "--log", folder / "job.log"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("one channel to each peer"), std::string::npos) << r.output;
  EXPECT_EQ(run_process({INGOT_BINARY, "doctor", "--disk=0", "--log", folder / "none.log"}).exit_code, 1);
}

}  // namespace ingot::test::doctor_devices_test
