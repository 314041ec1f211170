// See micro_graphs.h.
#include "train/micro_graphs.h"

#include <algorithm>

#include "base/log.h"
#include "tape/backward.h"

namespace ingot {
namespace {

/// The first steps allocate.
constexpr int64_t kEagerSteps = 2;

/// What a graph cannot hold, as the device counts it.
int64_t refused_work(const DeviceCounters& c) {
  return c.allocations + c.unplanned_copies + c.synchronizations;
}

/// Ends the thread's capture where an exception passes: later work must run.
class CaptureEnd {
 public:
  explicit CaptureEnd(Device& device) : device_(device) { device_.begin_capture(); }
  ~CaptureEnd() {
    if (has_ended_) return;
    try {
      device_.end_capture();
    } catch (...) {  // the device has ended it itself
    }
  }
  CaptureEnd(const CaptureEnd&) = delete;
  CaptureEnd& operator=(const CaptureEnd&) = delete;
  DeviceGraph end() {
    has_ended_ = true;
    return device_.end_capture();
  }

 private:
  Device& device_;
  bool has_ended_ = false;
};

}  // namespace

bool MicroGraphs::take(const Model& model, const data::Batch& batch, const StepOptions& options,
                       Device& device) {
  const WeightSet& weights = model.weights();
  return device.captures_graphs() && weights.size() > 0 && weights.master(0).device == device.kind() &&
         options.head == HeadMode::gradient && options.objective->known_cotangent &&
         options.offload_store == nullptr && options.observer == nullptr && !options.check_finite &&
         batch.routes.empty() && batch.allowed.empty() && model.config().custom_attention.empty();
}

MicroGraphs::MicroGraphs(const Model& model, GradientBuffer& gradients, Device& device, int64_t rows)
    : model_(model), gradients_(gradients), device_(device), places_(device, model, rows) {}

void MicroGraphs::begin_step(const StepOptions& options) {
  ++steps_;
  places_.begin_step();
  const ModelConfig& config = model_.config();
  const Key key{config.window,         config.rope_theta,
                options.z_coefficient, options.objective->logit_scale,
                options.policy,        options.sums != nullptr ? options.sums->loss : nullptr,
                kernel_policy()};
  if (key == key_) return;
  key_ = key;
  graphs_.clear();
}

std::vector<bool> MicroGraphs::written() const {
  std::vector<bool> written;
  for (int i = 0; i < model_.weights().size(); ++i) written.push_back(gradients_.written(i));
  return written;
}

const MicroGraphs::Graph& MicroGraphs::graph_of(const std::shared_ptr<const MicroBatch>& batch,
                                                const Step& step) {
  const std::vector<bool> before = written();
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& g) {
    return g.document_capacity == places_.document_capacity() && g.written == before;
  });
  if (found != graphs_.end()) return *found;
  Graph graph{places_.document_capacity(), before, {}, {}};
  {
    CaptureEnd capture(device_);
    run_passes(batch, step);
    graph.graph = capture.end();
  }
  const std::vector<bool> after = written();
  for (size_t i = 0; i < after.size(); ++i)
    if (after[i]) graph.writes.push_back(static_cast<int>(i));
  ++counts_.captured;
  return graphs_.emplace_back(std::move(graph));
}

void MicroGraphs::run(const std::shared_ptr<const MicroBatch>& batch, const Step& step) {
  places_.put(*batch, router_seeds(model_.config().moe, step.tokens, batch->ids.numel()));
  const bool fits = places_.documents().defined();
  if (!fits && !said_) {
    said_ = true;
    log::info("a micro-batch has {} documents, more than a graph of its passes takes: it runs without one",
              batch->rows.spans.size());
  }
  if (!fits || steps_ <= kEagerSteps || !is_quiet_) {
    run_eagerly(batch, step);
  } else {
    const Graph& graph = graph_of(batch, step);
    device_.replay(graph.graph);
    for (const int parameter : graph.writes) gradients_.slot(parameter);
    ++counts_.replayed;
  }
  if (!places_.has_results()) return places_.allocate_results();  // the passes have read them themselves
  places_.read_results(
      step.reads, std::make_shared<const MicroStats>(MicroStats{.batch = batch,
                                                                .objective = step.options.objective,
                                                                .z_coefficient = step.options.z_coefficient,
                                                                .model = &model_,
                                                                .stats = &step.stats,
                                                                .running = &step.running,
                                                                .router_rows = batch->ids.numel()}));
}

void MicroGraphs::run_eagerly(const std::shared_ptr<const MicroBatch>& batch, const Step& step) {
  const int64_t before = refused_work(device_.counters());
  run_passes(batch, step);
  ++counts_.eager;
  if (places_.documents().defined()) is_quiet_ = refused_work(device_.counters()) == before;
}

void MicroGraphs::run_passes(const std::shared_ptr<const MicroBatch>& batch, const Step& step) {
  step.arena.restart();
  places_.begin_results();
  Tape tape(step.arena, step.tape);
  MicroStep passes(model_, tape, batch, step.options, step.tokens, &step.stats, step.running, step.reads,
                   &places_);
  passes.forward(whole_model(model_.config()), {});
  Backward(tape).run();
  places_.end_results();
}

}  // namespace ingot
