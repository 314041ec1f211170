// Tasks during a run cost at most 64 MiB of memory beside a model of 10 million parameters, at every
// checkpoint.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "report/metrics.h"
#include "support/process_memory.h"
#include "support/tiny_run.h"

namespace ingot::test::run_tasks_memory_test {

constexpr double kMiB = 0x1p20;

int64_t peak_of_run(const std::vector<std::string>& command) {
  Process run(command);
  int64_t peak = 0;
  while (run.running()) {
    peak = std::max(peak, status_bytes("VmHWM", std::to_string(run.pid())));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const ProcessResult r = run.wait();
  EXPECT_EQ(r.exit_code, 0) << r.output;
  return peak;
}

TEST(TasksMemory, AtMost64MiBBesideTenMillionParameters) {
  const TempDir folder;
  const std::string text = tiny_text(4000);
  write_text(folder / "text.txt", text);
  std::string rows;
  for (size_t i = 0; i < 20; ++i) {
    const nlohmann::json row = {{"start", text.substr(120 * i, 100)},
                                {"c", {text.substr(120 * i + 100, 9), "the of a"}}};
    rows += row.dump() + "\n";
  }
  write_text(folder / "rows.jsonl", rows);
  write_text(
      folder / "pick.toml",
      "kind = \"choice\"\ndata = \"rows.jsonl\"\nprompt = \"{{start}}\"\nchoices_field = \"c\"\ntarget = "
      "\"0\"\n");
  write_text(folder / "go_on.toml",
             "kind = \"generation\"\ndata = \"rows.jsonl\"\nprompt = \"{{start}}\"\ntarget = "
             "\"{{c.0}}\"\n[sampling]\n"
             "max_tokens = 60\ntemperature = 1.0\nsamples = 2\n");
  const auto recipe = [&](const char* name, const char* tasks) {
    const std::string path = folder / (std::string(name) + ".toml");
    write_text(
        path,
        fmt::format("[run]\nfolder = \"{0}/{1}\"\n[model]\npreset = \"llama-small\"\nwidth = 384\nlayers = "
                    "6\nheads = 6\nkv_heads = 6\nhead_width = 64\nhidden = 1024\ncontext = "
                    "256\n[tokenizer]\nkind = \"characters\"\n[data]\nfolder = \"{0}/data\"\n"
                    "[[data.sources]]\nname = \"words\"\npath = \"{0}/text.txt\"\ndocuments = "
                    "\"blank_line\"\ntail_validation = "
                    "true\n"
                    "[[phases]]\nsteps = 3\nbatch = 2\nsequence = 256\nwarmup = 0\n[checkpoint]\nevery = "
                    "1\n[samples]\nprompts = []\n[evaluation]\n{2}\n",
                    folder.path(), name, tasks));
    return path;
  };
  const std::string tasks =
      fmt::format("every = 0\ntasks = [\"pick\", \"go_on\"]\ntasks_folder = \"{}\"", folder.path());
  const int64_t without = peak_of_run({INGOT_BINARY, "run", recipe("without", "every = 0")});
  const int64_t with = peak_of_run({INGOT_BINARY, "run", recipe("with", tasks.c_str())});
  const auto metrics = read_metrics(real_file_system(), folder / "with/metrics.jsonl");
  EXPECT_EQ(
      std::count_if(metrics.begin(), metrics.end(),
                    [](const MetricRow& row) { return row.scalar("task/go_on/exact_match") != nullptr; }),
      3);
  EXPECT_GT(without, 150 * kMiB) << "weights, gradients and moments";
  EXPECT_LE(with - without, 64 * kMiB);
  fmt::print("peak without tasks {:.1f} MiB, with them {:.1f} MiB\n", without / kMiB, with / kMiB);
}

}  // namespace ingot::test::run_tasks_memory_test
