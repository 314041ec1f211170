// `ingot doctor`: finds limits everywhere in the system, gives a remedy for each finding that is not ok,
// and fails only on problems.
#include "measure/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "base/control_group.h"
#include "base/file_system.h"
#include "base/parallel.h"
#include "device/simd/isa.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::doctor_test {

using test::TempDir;

/// A tree in place of "/".
void plant(const TempDir& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(root / path).parent_path());
  test::write_text(root / path, text + "\n");
}

const Finding* find(const std::vector<Finding>& findings, const std::string& topic) {
  const auto at =
      std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.topic == topic; });
  return at == findings.end() ? nullptr : &*at;
}

Finding look(const std::string& root, const std::string& folder, const std::string& topic) {
  DoctorOptions o;
  o.root = root, o.folder = folder, o.disk_bytes = 0, o.rates = false;
  const std::vector<Finding> findings = examine(o);
  const Finding* f = find(findings, topic);
  EXPECT_NE(f, nullptr) << topic;
  return f ? *f : Finding{};
}

TEST(ControlGroup, TheTightestLimitOfAllParentsCounts) {
  const TempDir root;
  EXPECT_EQ(control_group(root.path()).cores, 0);
  EXPECT_EQ(control_group(root.path()).memory_bytes, 0);
  plant(root, "proc/self/cgroup", "0::/jobs/mine");
  plant(root, "sys/fs/cgroup/jobs/mine/cpu.max", "max 100000");
  plant(root, "sys/fs/cgroup/jobs/mine/memory.max", "8000000");
  plant(root, "sys/fs/cgroup/jobs/mine/memory.current", "100");
  plant(root, "sys/fs/cgroup/jobs/cpu.max", "150000 100000");
  plant(root, "sys/fs/cgroup/jobs/memory.max", "5000000");
  plant(root, "sys/fs/cgroup/jobs/memory.current", "2000000");
  plant(root, "sys/fs/cgroup/memory.max", "max");
  const ControlGroup limits = control_group(root.path());
  EXPECT_DOUBLE_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory_bytes, 5000000);
  EXPECT_EQ(limits.used_bytes, 2000000);
}

TEST(ControlGroup, ReadsVersionOne) {
  const TempDir root;
  plant(root, "proc/self/cgroup", "7:cpu,cpuacct:/a\n4:memory:/a\n1:name=systemd:/a");
  plant(root, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1");
  plant(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");
  plant(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  plant(root, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712");  // its "none"
  plant(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000");
  const ControlGroup limits = control_group(root.path());
  EXPECT_DOUBLE_EQ(limits.cores, 2.0);
  EXPECT_EQ(limits.memory_bytes, 7000000);
}

TEST(Doctor, MoreThreadsThanTheControlGroupAllowsAreANote) {
  const TempDir root, folder;
  plant(root, "proc/self/cgroup", "0::/");
  plant(root, "sys/fs/cgroup/cpu.max", "100000 100000");
  const int before = num_threads();
  set_num_threads(3);
  const Finding many = look(root.path(), folder.path(), "cores");
  set_num_threads(1);
  const Finding one = look(root.path(), folder.path(), "cores");
  set_num_threads(before);
  EXPECT_EQ(many.level, Finding::Level::note) << many.text;
  EXPECT_NE(many.remedy.find("INGOT_THREADS=1"), std::string::npos) << many.remedy;
  EXPECT_EQ(one.level, Finding::Level::ok) << one.text << one.remedy;
}

TEST(Doctor, ReadsWhatTheSystemTells) {
  const TempDir root, folder;
  const auto huge = [&](const char* modes) {
    plant(root, "sys/kernel/mm/transparent_hugepage/enabled", modes);
    return look(root.path(), folder.path(), "huge pages").level;
  };
  EXPECT_EQ(huge("always madvise [never]"), Finding::Level::note);
  EXPECT_EQ(huge("always [madvise] never"), Finding::Level::ok);
  plant(root, "proc/meminfo",
        "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\nHugePages_Free:       12");
  EXPECT_NE(look(root.path(), folder.path(), "huge pages").text.find("12 free"), std::string::npos);
  EXPECT_EQ(look(root.path(), folder.path(), "memory").text, "7.63 GiB of 15.3 GiB are free");
  plant(root, "proc/self/cgroup", "0::/");
  plant(root, "sys/fs/cgroup/memory.max", "300000000");
  EXPECT_EQ(look(root.path(), folder.path(), "memory").level, Finding::Level::note);
  plant(root, "proc/cpuinfo",
        "model name\t: Abacus 9\ncpu family\t: 6\nmodel\t\t: 207\nflags\t\t: fpu avx2 fma avx512_bf16");
  EXPECT_EQ(look(root.path(), folder.path(), "processor").text,
            "Abacus 9 (family 6, model 207); has avx2 fma avx512_bf16");
  const std::string cache = "sys/devices/system/cpu/cpu0/cache/index0/";
  plant(root, cache + "level", "1"), plant(root, cache + "type", "Data"), plant(root, cache + "size", "48K"),
      plant(root, cache + "shared_cpu_list", "0");
  EXPECT_EQ(look(root.path(), folder.path(), "caches").text, "L1d 48K for cores 0");
  plant(root, "proc/loadavg", "90.00 1.00 1.00 2/100 7");
  EXPECT_EQ(look(root.path(), folder.path(), "load").level, Finding::Level::note);
  plant(root, "sys/devices/system/node/online", "0-1");
  EXPECT_EQ(look(root.path(), folder.path(), "memory domains").level, Finding::Level::note);
  plant(root, "proc/self/mountinfo",
        "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / " + folder.path() + " rw master:1 - tmpfs none rw");
  const Finding disk = look(root.path(), folder.path(), "disk");
  EXPECT_EQ(disk.level, Finding::Level::note);
  EXPECT_NE(disk.text.find("(tmpfs)"), std::string::npos) << disk.text;
  plant(root, "proc/self/status", "Name:\tx\nSeccomp:\t2");
  EXPECT_EQ(look(root.path(), folder.path(), "seccomp").text, "system calls are filtered");
}

TEST(Doctor, AFolderThatDoesNotExistYetIsMeasuredWhereItWouldBe) {
  const TempDir folder;
  DoctorOptions o;
  o.folder = folder / "runs/new", o.disk_bytes = 1 << 20;
  const std::vector<Finding> findings = examine(o);
  EXPECT_FALSE(any_problem(findings)) << to_text(findings);
  ASSERT_NE(find(findings, "disk speed"), nullptr);
  EXPECT_NE(find(findings, "disk speed")->text.find("with fsync"), std::string::npos);
  EXPECT_TRUE(real_file_system().list(folder.path()).empty()) << "left something behind";
  for (const Finding& f : findings) {
    EXPECT_EQ(f.level == Finding::Level::ok, f.remedy.empty()) << f.topic;
    EXPECT_FALSE(f.text.empty()) << f.topic;
  }
}

TEST(DoctorCommand, PrintsALineForEachFindingAndWritesJson) {
  const TempDir folder;
  const auto r = test::run_process(
      {INGOT_BINARY, "doctor", folder.path(), "--disk=1MiB", "--json", folder / "doctor.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("everything works"), std::string::npos) << r.output;
  const auto json = nlohmann::json::parse(test::read_text(folder / "doctor.json"));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["works"], true);
  std::vector<std::string> topics;
  for (const auto& f : json["findings"]) topics.push_back(f["topic"]);
  for (const char* topic : {"build", "libraries", "MPI", "processor", "instruction set", "cores", "load",
                            "caches", "clock", "memory", "huge pages", "shared memory", "disk", "disk speed",
                            "seccomp", "perf events", "process_vm_readv", "open files", "locked memory"})
    EXPECT_EQ(std::count(topics.begin(), topics.end(), topic), 1) << topic;
  for (const std::string& topic : topics) EXPECT_NE(r.output.find(topic), std::string::npos) << topic;
  const auto unmeasured = test::run_process({INGOT_BINARY, "doctor", folder.path(), "--disk=0"});
  EXPECT_EQ(unmeasured.output.find("disk speed"), std::string::npos) << unmeasured.output;
}

TEST(DoctorCommand, WhatWillNotWorkFails) {
  const auto r = test::run_process({INGOT_BINARY, "doctor", "/proc/self"});  // no run can be there
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_NE(r.output.find("problem  disk"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("1 thing will not work"), std::string::npos) << r.output;
}

TEST(DoctorCommand, SettingsThatSlowItDownOrMeanNothingAreNotes) {
  const TempDir folder;
  const auto r = test::run_process({INGOT_BINARY, "doctor", folder.path(), "--disk=0"},
                                   {"INGOT_ISA=generic", "OMP_NUM_THREADS=1"});
  if (!isa_available(Isa::generic)) {  // INGOT_NATIVE, as under a sanitizer
    EXPECT_EQ(r.exit_code, 1) << r.output;
    EXPECT_NE(r.output.find("INGOT_ISA is generic, and this program has kernels for avx"), std::string::npos)
        << r.output;
    return;
  }
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_TRUE(std::regex_search(r.output, std::regex("note +instruction set +generic"))) << r.output;
  EXPECT_TRUE(std::regex_search(r.output, std::regex("note +libraries"))) << r.output;
  EXPECT_NE(r.output.find("; OMP_NUM_THREADS"), std::string::npos) << r.output;
}

}  // namespace ingot::doctor_test
