// See ops_bench.h.
#include "measure/ops_bench.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/parallel.h"
#include "device/simd/isa.h"
#include "measure/op_sizes.h"
#include "measure/peak_trial.h"
#include "measure/read_rate.h"
#include "measure/step_bench.h"
#include "ops/registry.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

void execute(const Kernel& kernel, Direction direction, const OpCall& call) {
  if (direction == Direction::forward)
    kernel.forward(call);
  else if (direction == Direction::backward_input)
    kernel.backward_input(call);
  else
    kernel.backward_weight(call);
}

/// Repeats each execution that the tape has just made. Kernels are pure; an accumulated gradient grows, but
/// is unused.
class Repeater final : public TapeObserver {
 public:
  /// `memory`: empties the caches before each call; nullptr: they stay.
  Repeater(OpsBenchReport& report, const OpsBenchOptions& options, ReadRate* memory)
      : report_(report), options_(options), memory_(memory) {}
  void tensor(const std::string&, const Tensor&) override {}
  bool wants_tensors() const override { return false; }

  void ran(const OpRun& run) override {
    bool& runs_forward = seen_[run.op.name];
    runs_forward |= !run.is_recompute;
    const std::vector<std::string>& only = options_.only;
    const bool wanted = only.empty() || std::find(only.begin(), only.end(), run.op.name) != only.end();
    const bool repeats = run.is_recompute && runs_forward;  // dequantize runs in backward alone
    if (!wanted || repeats || time_of(run.op) == TimeOf::exchanges) return;
    std::vector<Tensor> gradients;
    std::string how;
    for (const GradSlot& g : run.call.d_in) gradients.push_back(g.tensor), how += g.accumulate ? '+' : '=';
    OpRow row;
    row.op = run.op.name, row.segment = run.segment.name;
    row.pass = pass_of(run), row.what = time_of(run.op);
    row.shapes = shapes_of(run.call.in) + (run.call.d_out.empty() ? "" : "; " + shapes_of(run.call.d_out));
    std::string attributes = run.op.print(run.call.attr_data);
    attributes.resize(std::min(
        attributes.size(), attributes.find(" layer=")));  // the last of those that have it; layers are alike
    const std::string key =
        fmt::format("{} {} {} {} {} {} {}", row.op, static_cast<int>(row.pass), attributes, row.shapes,
                    shapes_of(run.call.out), shapes_of(gradients), how);
    const auto [at, fresh] = known_.try_emplace(key, report_.rows.size());
    if (fresh) {
      row.flops = run.flops, row.bytes = run.bytes, row.sizes = sizes_of(run);
      measure(run, row);
      report_.rows.push_back(std::move(row));
    }
    ++report_.rows[at->second].calls;
  }

  const std::map<std::string, bool>& seen() const { return seen_; }
  std::vector<double> peaks;

 private:
  void measure(const OpRun& run, OpRow& row) {
    const Kernel& kernel = select_kernel(run.op, run.call);
    PeakTimer timer(peaks);
    std::vector<PeakTrial> trials;
    const auto work = [&] { execute(kernel, run.direction, run.call); };
    for (int trial = 0; trial < options_.trials; ++trial)
      trials.push_back(memory_ != nullptr ? timer.once([&] { memory_->sweep(); }, work)
                                          : timer(options_.seconds, work));
    row.seconds = spread_over(trials, &PeakTrial::seconds);
    row.share = spread_over(trials, [&](const PeakTrial& t) {
      return std::max(row.flops / (1e9 * t.peak_gflops), row.bytes / (1e9 * report_.read_gbs)) / t.seconds;
    });
    if (!options_.reference) return;
    const double begin = monotonic_seconds();
    execute(run.op.kernels.back(), run.direction, run.call);
    row.reference_seconds = monotonic_seconds() - begin;
  }

  OpsBenchReport& report_;
  const OpsBenchOptions& options_;
  ReadRate* memory_;
  std::map<std::string, size_t> known_;
  std::map<std::string, bool> seen_;  ///< ops, and whether they have run forward
};

}  // namespace

double OpsBenchReport::roofline_seconds(const OpRow& r) const {
  return std::max(r.flops / (1e9 * peak_gflops), r.bytes / (1e9 * read_gbs));
}

double OpsBenchReport::attention_crossing() const {
  const OpRow* most = nullptr;
  for (const OpRow& r : rows)
    if (r.op == "attention" && r.pass == OpPass::forward && (most == nullptr || r.flops > most->flops))
      most = &r;
  if (most == nullptr || most->flops <= 0) return 0;
  return static_cast<double>(length) * (most->bytes / (1e9 * read_gbs)) / (most->flops / (1e9 * peak_gflops));
}

OpsBenchReport bench_ops(const Recipe& recipe, const OpsBenchOptions& o) {
  if (compute_device() != DeviceKind::cpu)
    throw Error(fmt::format("`ingot bench ops` measures the CPU's kernels, and the device is '{}'",
                            name_of(compute_device())),
                "leave INGOT_DEVICE out, or measure a GPU's with `ingot bench device`");
  const PhaseConfig& phase = recipe.phases.at(0);
  for (const std::string& name : o.only)
    if (std::none_of(all_ops().begin(), all_ops().end(), [&](const Op* op) { return op->name == name; }))
      throw Error(fmt::format("there is no op '{}'", name), "`ingot kernels` lists them");
  OpsBenchReport r;
  r.of = recipe.model.preset, r.precision = name_of(recipe.run.precision), r.isa = isa_name(active_isa());
  r.threads = num_threads();
  r.batch = phase.micro(), r.length = phase.sequence, r.cold = o.cold;
  const std::unique_ptr<TrainEngine> engine = engine_at_start(recipe);
  std::optional<ReadRate> memory;
  if (o.cold || o.read_gbs <= 0) memory.emplace(r.threads);
  r.read_gbs = o.read_gbs > 0 ? o.read_gbs : 1e-9 * (*memory)();
  if (!o.cold) memory.reset();
  Repeater repeater(r, o, memory ? &*memory : nullptr);
  StepOptions options = engine->options(0, r.batch);
  options.observer = &repeater;
  engine->forward_backward(random_batch(r.batch, r.length, recipe.model.vocab, 0), options);
  r.peak_gflops = repeater.peaks.empty() ? fma_peak_gflops() : spread_of(repeater.peaks).median;
  for (const Op* op : all_ops())
    if (!repeater.seen().contains(op->name)) r.absent.push_back(op->name);
  return r;
}

std::string to_text(const OpsBenchReport& r) {
  Table executions({words("op"),
                    words("pass"),
                    words("segment"),
                    {.title = "calls"},
                    number("ms", 4, 1e3),
                    number("GFLOP/s", 1, 1e-9),
                    number("GB/s", 1, 1e-9),
                    {.title = "of roofline", .format = "{:.1f}%", .scale = 100, .spread = true},
                    {.title = "limit"},
                    {.title = "", .format = "{:.1f} x reference"},
                    words("shapes")});
  struct Sum {
    double roofline = 0, seconds = 0, reference = 0;
  };
  std::map<std::string, Sum> ops;
  Sum whole;
  for (const OpRow& row : r.rows) {
    const double t = row.seconds.median, calls = static_cast<double>(row.calls);
    const bool bound_by_flops = row.flops / r.peak_gflops > row.bytes / r.read_gbs;
    executions.add({row.op, name_of(row.pass), row.segment, row.calls, t, row.flops / t, row.bytes / t,
                    row.share, bound_by_flops ? "FLOPs" : "bytes",
                    row.reference_seconds > 0 ? Cell(row.reference_seconds / t) : Cell(), row.shapes});
    for (Sum* s : {&ops[row.op], &whole}) {
      s->roofline += calls * row.share.median * t;
      s->seconds += calls * t;
      s->reference += calls * row.reference_seconds;
    }
  }
  ops["all of these"] = whole;
  Table totals({words("op"), number("ms per step", 3, 1e3), percent("of roofline")});
  std::string slow, absent;
  for (const auto& [name, s] : ops) {
    totals.add({name, s.seconds, s.roofline / s.seconds});
    if (s.reference > 0 && s.reference < 3 * s.seconds) slow += " " + name;
  }
  for (const std::string& name : r.absent) absent += " " + name;
  const double tokens = r.attention_crossing();
  const std::string crossing =
      tokens > 0
          ? fmt::format("attention is limited by bytes below {:.0f} tokens of a sequence, by FLOPs above\n",
                        tokens)
          : "";
  return fmt::format(
             "{}, {}: {} x {} tokens, {}, {} kernels; roofline: FLOPs at P = {:.0f} GFLOP/s of fp32, "
             "bytes at B = {:.1f} GB/s{}\n",
             r.of, r.precision, r.batch, r.length, count_of(r.threads, "thread"), r.isa, r.peak_gflops,
             r.read_gbs, r.cold ? "; one call a trial, caches empty" : "") +
         text_of({executions, totals}) + crossing +
         (slow.empty() ? "" : "less than 3 times as fast as the reference:" + slow + "\n") +
         (absent.empty() ? "" : "not in this step:" + absent + "\n");
}

std::string to_json(const OpsBenchReport& r) {
  Json rows = Json::array();
  for (const OpRow& row : r.rows) {
    Json j{{"op", row.op},
           {"pass", name_of(row.pass)},
           {"segment", row.segment},
           {"shapes", row.shapes},
           {"calls", row.calls},
           {"flops", row.flops},
           {"bytes", row.bytes},
           {"seconds", row.seconds},
           {"roofline_seconds", r.roofline_seconds(row)},
           {"share_of_roofline", row.share}};
    if (row.reference_seconds > 0) j["reference_seconds"] = row.reference_seconds;
    rows.push_back(std::move(j));
  }
  const Json all{{"format", 1},
                 {"of", r.of},
                 {"precision", r.precision},
                 {"isa", r.isa},
                 {"threads", r.threads},
                 {"batch", r.batch},
                 {"length", r.length},
                 {"peak_gflops", r.peak_gflops},
                 {"read_gigabytes_per_second", r.read_gbs},
                 {"cold", r.cold},
                 {"attention_crossing_tokens", r.attention_crossing()},
                 {"rows", std::move(rows)},
                 {"absent", r.absent}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
