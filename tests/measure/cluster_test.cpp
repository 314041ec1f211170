// Cluster files: those that are shipped, and what is refused, with line and remedy.
#include "measure/cluster.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "support/support.h"

namespace ingot::test::cluster_test {

TEST(Cluster, ShippedOnesRead) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(INGOT_SOURCE_DIR "/clusters")) {
    const Cluster c = load_cluster(entry.path().string());
    EXPECT_FALSE(c.name.empty()) << entry.path();
    EXPECT_GT(c.device_bytes(), 0) << entry.path();
    EXPECT_FALSE(c.device.source.empty()) << entry.path();
    for (const LinkLevel& l : c.links) EXPECT_FALSE(l.source.empty()) << entry.path();
    ++count;
  }
  EXPECT_EQ(count, 5);
}

TEST(Cluster, PrintsAndReadsBack) {
  const Cluster c = load_cluster(INGOT_SOURCE_DIR "/clusters/h100-ib.toml");
  EXPECT_EQ(print_config(cluster_from_text(print_config(c), "printed")), print_config(c));
}

const std::string kGood = "[device]\nmemory = \"80GB\"\nbandwidth = 3350.0\nrates = { bf16 = 990.0 }\n";

void refused(const std::string& text, const std::vector<std::string>& parts) {
  try {
    cluster_from_text(text, "c.toml");
    FAIL() << "read:\n" << text;
  } catch (const Error& e) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\nwithout " << part;
  }
}

TEST(Cluster, BadOnesAreRefusedByLine) {
  EXPECT_NO_THROW(cluster_from_text(kGood, "c.toml"));
  refused(kGood + "[[links]]\nranks = 8\ngb_per_sec = 45.0\n", {"c.toml:7", "unknown key", "gb_per_s"});
  refused(kGood + "[[links]]\nranks = 8\ngb_per_s = -45.0\n", {"c.toml:7", "must be"});
  refused(kGood + "[[links]]\nname = \"x\"\nranks = 8\n", {"links.0.gb_per_s", "not set"});
  refused(kGood + "[[links]]\nranks = 8\ngb_per_s = 1.0\n[[links]]\nranks = 12\ngb_per_s = 1.0\n",
          {"c.toml:9", "whole domains", "multiple of 8"});
  refused(kGood + "[[links]]\nranks = 0\ngb_per_s = 1.0\n[[links]]\nranks = 8\ngb_per_s = 1.0\n",
          {"outermost"});
  refused(kGood + "[[curves]]\nranks = 8\nbytes = [1e6, 2e6]\ngb_per_s = [100.0, 250.0]\n",
          {"c.toml:8", "less time"});
  refused(kGood + "[[curves]]\nranks = 8\nbytes = [2e6, 1e6]\ngb_per_s = [100.0, 250.0]\n", {"must ascend"});
  refused(kGood + "[host]\nmemory = \"2TiB\"\n", {"c.toml:6", "GiB", "GB"});
  refused("[device]\nmemory = \"80GB\"\nbandwidth = 3350.0\n", {"device.rates", "names no rate"});
  refused(kGood + "product_share = 0.7\n", {"c.toml:5", "device.product_share", "a table of keys"});
  refused(kGood + "product_share = { fp8 = 0.7 }\n", {"c.toml:5", "device.product_share.fp8", "'f8'"});
  refused(kGood + "[[device.points]]\nop = \"linear\"\nm = 8\nn = 8\ntflops = 1.0\n", {"m, n and k"});
  refused(kGood + "[[device.points]]\nm = 8\nn = 8\nk = 8\ntflops = 1.0\ntype = \"f32\"\n",
          {"c.toml:10", "names no rate"});
  refused(kGood + "[[device.points]]\nm = 8\nn = 8\nk = 8\ntflops = 1.0\ntype = \"f16\"\n", {"none of f32"});
  refused(kGood + "[[device.points]]\nop = \"wobble\"\nbytes = 8.0\ngb_per_s = 1.0\n",
          {"'wobble' is none of"});
  refused(kGood + "[[device.points]]\nop = \"add_norm\"\ngb_per_s = 1.0\n", {"bytes", "not set"});
  refused(kGood + "[[device.points]]\nop = \"add_norm\"\nbytes = 8.0\ngb_per_s = 1.0\ntflops = 1.0\n",
          {"one of them"});
  refused(
      kGood + "[[device.points]]\nop = \"attention\"\nwidth = 8\nlength = 8\ntflops = 1.0\ngb_per_s = 1.0\n",
      {"not attention"});
  refused("[device]\nmemory = \"much\"\nbandwidth = 1.0\nrates = { f32 = 1.0 }\n", {"c.toml:2", "80GB"});
}

/// Every file of the fuzzer's corpus is a cluster or an Error, also with a byte changed or its end cut off.
TEST(Cluster, TheCorpusNeverCrashes) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(INGOT_SOURCE_DIR "/tests/fuzz/corpus/cluster")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto read = [](const std::string& t) {
      try {
        cluster_from_text(t, "corpus");
      } catch (const Error&) {
      }
    };
    read(text);
    for (size_t i = 0; i < text.size(); i += 7) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ 21);
      read(changed);
      read(text.substr(0, i));
    }
    ++count;
  }
  EXPECT_GE(count, 4);
}

}  // namespace ingot::test::cluster_test
