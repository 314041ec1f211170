// See published_speed.h.
#include "plan/published_speed.h"

#include <algorithm>
#include <deque>
#include <map>

#include "plan/layout_choice.h"
#include "plan/run_time.h"
#include "report/table.h"

namespace ingot::published {
namespace {

struct PrintedSpeed {
  const char *system, *preset, *type;
  int ranks;
  int64_t length, tensor, pipeline, context, expert, chunks, micro, batch;
  const char *recompute, *layout;
  bool overlap;  ///< expert communication beside another micro-batch
  double tflops;
};

/// What is recomputed, by the names of train/memory_policy.h.
constexpr const char *kMlp = "\"mlp/\"", *kLight = "\"activation\", \"add_norm.h\"",
                     *kMlpAndUp = "\"mlp/\", \"attention/linear\", \"attention/mla_pack\"";

/// How DeepSeek-V3's layers lie in 16 stages, and in 32 (section 9.2).
constexpr const char *kOf16 = "Et*4|(tttt|)*14tmL", *kOf32 = "Et*3|(tt|)*29,m|L";

/// Tables 11 and 20, in their order; DeepSeek-V3 on H100 with the pipeline of 8 of table 17.
constexpr PrintedSpeed kPrinted[] = {
    {"GB300", "deepseek-v3", "f8", 256, 4096, 1, 4, 1, 64, 4, 1, 8192, "", kOf16, true, 1233},
    {"GB200", "deepseek-v3", "f8", 256, 4096, 1, 4, 1, 64, 4, 1, 8192, kMlp, kOf16, false, 1048},
    {"GB200", "deepseek-v3", "bf16", 256, 4096, 1, 8, 1, 32, 4, 1, 4096, kMlp, kOf32, false, 857},
    {"H100", "deepseek-v3", "f8", 1024, 4096, 2, 8, 1, 64, 4, 1, 8192, kMlpAndUp, kOf32, true, 368},
    {"GB300", "qwen3-235b", "f8", 256, 4096, 1, 4, 1, 64, 6, 2, 3072, "", "", false, 974},
    {"GB200", "qwen3-235b", "f8", 256, 4096, 1, 4, 1, 64, 6, 3, 3072, kLight, "", true, 919},
    {"GB200", "qwen3-235b", "bf16", 256, 4096, 1, 4, 1, 32, 12, 1, 8192, kLight, "", true, 750},
    {"H100", "qwen3-235b", "bf16", 256, 4096, 2, 8, 1, 32, 4, 1, 2048, kLight, "", true, 320},
    {"GB300", "qwen3-235b", "f8", 128, 131072, 4, 4, 4, 32, 12, 1, 1024, "", "", false, 1150},
};

Recipe recipe_of(const PrintedSpeed& p) {
  std::string text = fmt::format(
      "data.sources = [{{ name = \"a\", path = \"a\" }}]\nrun.precision = \"bf16\"\n"
      "optimizer.matrices = \"adamw\"\nmemory.recompute = [{}]\n"
      "model = {{ preset = \"{}\", context = {}, moe.sequence_aux_coefficient = 0.0{} }}\n"
      "phases = [{{ name = \"a\", batch = {}, micro_batch = {}, sequence = {} }}]\n[parallel]\n"
      "tensor = {}\nsequence = {}\ncontext = {}\ncontext_form = \"gather\"\npipeline = {}\n"
      "chunks = {}\nlayout = \"{}\"\n"
      "schedule = \"{}\"\nexpert = {}\ndispatch_capacity = 1.0\nshard = \"optimizer\"\n",
      p.recompute, p.preset, p.length, std::string(p.preset) == "deepseek-v3" ? ", mtp.depths = 1" : "",
      p.batch, p.micro, p.length, p.tensor, p.tensor > 1, p.context, p.pipeline,
      *p.layout == 0 ? p.chunks : 1, p.layout, p.overlap ? "merged" : "interleaved", p.expert);
  // DeepEP sends a token once to each node, and forwards it there.
  if (std::string(p.system) == "H100") text += "dispatch = \"hierarchical\"\nnode_ranks = 8\n";
  return recipe_from_tree(parse_toml(text, "table 11"), {});
}

/// The stages of a row, recorded once and timed with any share.
class PlannedSpeed {
 public:
  PlannedSpeed(const PrintedSpeed& of, const Cluster& cluster) : of_(of), cluster_(cluster) {
    cluster_.device.points.erase(std::remove_if(cluster_.device.points.begin(), cluster_.device.points.end(),
                                                [](const DevicePoint& p) { return is_product(p.op); }),
                                 cluster_.device.points.end());
    const Recipe recipe = recipe_of(of);
    const StageKinds kinds(recipe);
    for (const int stage : kinds.first) {
      ranks_.emplace_back(recipe, PlanFor{of.ranks, 1}, stage * of.ranks / static_cast<int>(of.pipeline));
      programs_.push_back(record_program(ranks_.back(), 0, cluster_));
    }
    for (const size_t kind : kinds.kind) {
      stages_.push_back({&ranks_[kind], &programs_[kind]});
      for (const StagePrograms& chunk : programs_[kind].chunks)
        for (const PassStep& s : chunk[static_cast<size_t>(WorkKind::forward)])
          if (s.what == TimeOf::products || s.what == TimeOf::attention) flops_ += 3 * s.flops;
    }
    const auto shared = static_cast<double>(of.tensor * of.context);
    flops_ *= shared / static_cast<double>(of.micro * of.length);
  }
  /// TFLOP/s where products reach this share of the peak.
  double at(double share) {
    cluster_.device.product_share.of(of_.type) = share;
    const auto micro_batches = of_.batch * of_.tensor * of_.pipeline * of_.context / (of_.ranks * of_.micro);
    return 1e-12 * flops_ *
           time_stages(stages_, 0, micro_batches, cluster_, {.type = of_.type}, true).tokens_per_second;
  }
  /// The share at which the printed speed comes out, or 1.
  double fitted() {
    double low = 0, high = 1;
    for (int i = 0; i < 16; ++i) {
      const double middle = (low + high) / 2;
      (at(middle) < of_.tflops ? low : high) = middle;
    }
    return high;
  }

 private:
  const PrintedSpeed& of_;
  Cluster cluster_;
  double flops_ = 0;  ///< of a token
  std::deque<PaperRank> ranks_;
  std::deque<RankProgram> programs_;
  std::vector<StageRank> stages_;
};

}  // namespace

std::vector<Speed> speeds(const Cluster& cluster) {
  std::vector<Speed> all;
  std::map<std::string, double> shares;  // by type
  for (const PrintedSpeed& p : kPrinted) {
    if (cluster.name.rfind(p.system, 0) != 0) continue;
    PlannedSpeed planned(p, cluster);
    const bool fitted = shares.count(p.type) == 0;
    if (fitted) shares[p.type] = planned.fitted();
    const double share = shares[p.type];
    all.push_back(
        {fmt::format("{} {}, {} x {}: tensor {}, pipeline {} x {}, context {}, experts over {}", p.preset,
                     p.type, p.ranks, p.system, p.tensor, p.pipeline, p.chunks, p.context, p.expert),
         p.tflops, planned.at(share), share, fitted});
  }
  if (all.empty())
    throw Error(fmt::format("[Megatron MoE] prints no speed on '{}'", cluster.name),
                "name a file of H100, GB200 or GB300: clusters/h100-ib.toml");
  return all;
}

std::string to_text(const std::vector<Speed>& speeds) {
  Table table({words("TFLOP/s of a device"), number("share of peak", 3), number("planned", 0),
               number("printed", 0), number("off by", 1, 100), words("%  ")});
  for (const Speed& s : speeds)
    table.add({s.what, s.share, s.planned, s.printed, s.residual(), s.fitted ? "fitted" : ""});
  return table.text();
}

}  // namespace ingot::published
