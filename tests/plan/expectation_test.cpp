// `ingot doctor --expect`: a machine is compared with a cluster file, host with host.
#include "measure/expectation.h"

#include <gtest/gtest.h>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::expectation_test {

Finding find(const std::vector<Finding>& findings, const std::string& topic) {
  for (const Finding& f : findings)
    if (f.topic == topic) return f;
  return {Finding::Level::problem, topic, "there is no such finding", ""};
}

Cluster host() {
  return cluster_from_text(
      "name = \"host\"\ndevices = 2\ndevices_per_node = 2\n[device]\nmemory = \"8GB\"\nbandwidth = 10.0\n"
      "rates = { f32 = 0.1, bf16 = 0.2 }\n[[links]]\nkind = \"shared_memory\"\ngb_per_s = 10.0\n"
      "[[curves]]\ncollective = \"all_reduce\"\nranks = 2\nbytes = [1e6]\ngb_per_s = [5.0]\n"
      "[[storage]]\nname = \"disk\"\nread_gb_per_s = 1.0\nwrite_gb_per_s = 0.5\niops = 1000.0\n",
      "test");
}

TEST(Expectation, WhatIsSlowerThanTheBandIsAProblem) {
  const Cluster expected = host();
  const auto same = compare_with(expected, expected, 0.2);
  EXPECT_EQ(same.size(), 7u) << "two rates, bandwidth, a collective, three of the storage";
  for (const Finding& f : same) EXPECT_EQ(f.level, Finding::Level::ok) << f.topic << ": " << f.text;
  Cluster slow = expected;
  slow.device.bandwidth = 7.9, slow.curves[0].gb_per_s = {3}, slow.storage[0].iops = 2000;
  const auto found = compare_with(expected, slow, 0.2);
  EXPECT_EQ(find(found, "expected bandwidth").level, Finding::Level::problem);
  EXPECT_NE(find(found, "expected bandwidth").text.find("15.8 GB/s of memory, 79 % of the 20"),
            std::string::npos)
      << find(found, "expected bandwidth").text;
  EXPECT_FALSE(find(found, "expected bandwidth").remedy.empty());
  EXPECT_EQ(find(found, "expected all_reduce").level, Finding::Level::problem);
  EXPECT_EQ(find(found, "expected f32").level, Finding::Level::ok);
  EXPECT_EQ(find(found, "expected IOPS").level, Finding::Level::note) << "faster: another machine";
  EXPECT_EQ(find(compare_with(expected, slow, 0.25), "expected bandwidth").level, Finding::Level::ok);
}

/// One device that is all of a host of two: the rates of a host are compared.
TEST(Expectation, AHostIsComparedWithAHost) {
  Cluster whole = host();
  whole.devices = whole.devices_per_node = 1, whole.links.clear(), whole.curves.clear();
  whole.device.rates.f32 = 0.2, whole.device.rates.bf16 = 0.4, whole.device.bandwidth = 20;
  for (const Finding& f : compare_with(host(), whole, 0.01))
    EXPECT_EQ(f.level, Finding::Level::ok) << f.topic;
}

TEST(Expectation, TheCommandMeasuresAndEndsWithOneWhereItIsSlower) {
  const TempDir folder;
  const auto doctor = [&](double rate) {
    write_text(folder / "c.toml",
               "name = \"this host\"\n[device]\nmemory = \"8GB\"\nbandwidth = 0.001\n"
               "rates = { f32 = " +
                   std::to_string(rate) + " }\n");
    return run_process({INGOT_BINARY, "doctor", folder.path(), "--disk=0", "--expect", folder / "c.toml"});
  };
  const ProcessResult fast = doctor(1e-6), slow = doctor(1e6);
  EXPECT_EQ(fast.exit_code, 0) << fast.output;
  EXPECT_NE(fast.output.find("describes a slower machine"), std::string::npos) << fast.output;
  EXPECT_EQ(slow.exit_code, 1) << slow.output;
  EXPECT_NE(slow.output.find("problem  expected f32"), std::string::npos) << slow.output;
  EXPECT_EQ(run_process({INGOT_BINARY, "doctor", "--band=0.1"}).exit_code, 2);
}

}  // namespace ingot::test::expectation_test
