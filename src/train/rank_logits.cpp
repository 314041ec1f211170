// See rank_logits.h.
#include "train/rank_logits.h"

#include <algorithm>
#include <numeric>

#include "tensor/convert.h"

namespace ingot {
namespace {

/// Forward pass of one document; the logits of its last token, for the rows of the head that this rank holds.
class LastToken final : public PipelineStep {
 public:
  LastToken(const Model& model, Tape& tape, std::span<const int32_t> ids, std::span<const int32_t> positions,
            std::vector<float>& logits)
      : model_(model),
        tape_(tape),
        rows_(document(static_cast<int64_t>(ids.size()))),
        logits_(logits),
        context_{tape, model.weights(), &rows_, tape.leaf(Tensor::of(positions.data(), {rows_.count}))},
        ids_T_(tape.leaf(Tensor::of(ids.data(), {rows_.count}))) {
    model.equip(context_);
    context_.sequence_parallel = false;  // the tokens need not divide among tensor ranks
  }
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received) override {
    StageForward stage(model_.decoder(), parts, context_, ids_T_, received);
    const Value hidden_TD = stage.head_input(0);
    if (!parts.loss) return stage.live_values();
    const Value last = tape_.leaf(hidden_TD.tensor().slice(rows_.count - 1, rows_.count));
    const std::vector<double> l = to_doubles(model_.decoder().logits(context_, last).tensor());
    logits_.assign(l.begin(), l.end());
    return {};
  }

 private:
  static BatchLayout document(int64_t tokens) {
    BatchLayout rows;
    rows.spans.push_back({0, tokens});
    rows.count = tokens;
    return rows;
  }
  const Model& model_;
  Tape& tape_;
  const BatchLayout rows_;
  std::vector<float>& logits_;
  Context context_;
  Value ids_T_;
};

}  // namespace

std::vector<float> RankLogits::after(std::span<const int32_t> tokens) {
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  std::vector<int32_t> positions(ids_.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> logits;
  const auto step = [&](Tape& tape) {
    return std::make_unique<LastToken>(model_, tape, ids_, positions, logits);
  };
  if (ranks_.pipe == nullptr) {
    Tape tape(arena_, {.device = compute_device(), .record = false});
    step(tape)->forward(whole_model(model_.config()), {});
    gather(logits);
    return logits;
  }
  const PipelineGroups& pipe = *ranks_.pipe;
  const Pipeline pipeline(model_.decoder(), model_.weights().precision(), pipe,
                          make_forward_schedule({pipe.stages(), pipe.layout().chunks(), 1}));
  std::vector<ScheduleObserver*> observers;
  if (ranks_.gatherer != nullptr) observers.push_back(ranks_.gatherer);
  pipeline.run([&](Tape& tape, int) { return step(tape); }, static_cast<int64_t>(ids_.size()),
               {.device = compute_device(), .record = false}, arena_, observers);
  const int last = pipe.stages() - 1;
  if (pipe.stage() == last) gather(logits);
  logits.resize(static_cast<size_t>(model_.config().head_rows()));
  if (last > 0)
    pipe.forward().broadcast(Tensor::of(logits.data(), {model_.config().head_rows()}), last).wait();
  return logits;
}

void RankLogits::gather(std::vector<float>& logits) const {
  Communicator& tensor = ranks_.groups->tensor();
  const int n = tensor.size();
  if (n == 1) return;
  const int64_t rows = model_.config().head_rows(), most = (rows + n - 1) / n;
  std::vector<float> all(static_cast<size_t>(n * most));
  logits.resize(static_cast<size_t>(most));  // shards differ by at most a row
  tensor.all_gather(Tensor::of(logits.data(), {most}), Tensor::of(all.data(), {n * most})).wait();
  logits.clear();
  for (int r = 0; r < n; ++r) {
    const auto part = all.begin() + r * most;
    logits.insert(logits.end(), part, part + (uneven_begin(rows, r + 1, n) - uneven_begin(rows, r, n)));
  }
}

}  // namespace ingot
