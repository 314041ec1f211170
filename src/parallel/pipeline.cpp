// See pipeline.h.
#include "parallel/pipeline.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "base/error.h"
#include "models/stage_boundary.h"
#include "tape/backward.h"
#include "tensor/host_copy.h"

namespace ingot {
namespace {

/// The tensors of one message, in memory of an arena, and their transfer.
class Message {
 public:
  Message(Arena& arena, DeviceKind device) : arena_(arena), device_(device) {}
  ~Message() {
    pending_.clear();
    for (const Block& b : blocks_) arena_.release(b);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  const std::vector<Tensor>& tensors() const { return tensors_; }

  Tensor add(const TensorMeta& meta) {
    blocks_.push_back(arena_.allocate(meta.bytes(), "boundary"));
    return tensors_.emplace_back(blocks_.back().data, meta.shape, meta.dtype, device_);
  }

  void receive(const std::vector<TensorMeta>& metas, Communicator& group, int from) {
    for (const TensorMeta& m : metas) {
      const Tensor t = add(m);
      if (device_ != DeviceKind::null) pending_.push_back(group.recv(t, from));
    }
  }
  void wait() {
    for (Pending& p : pending_) p.wait();
    pending_.clear();
  }

 private:
  Arena& arena_;
  DeviceKind device_;
  std::vector<Block> blocks_;
  std::vector<Tensor> tensors_;
  std::vector<Pending> pending_;
};

/// One micro-batch in one virtual stage, from its first message to its last.
struct MicroBatchState {
  MicroBatchState(Arena& arena, const TapeOptions& options, int stage)
      : stage(stage),
        inputs(arena, options.device),
        cotangents(arena, options.device),
        zeros(arena, options.device),
        tape(arena, options) {}
  int stage;
  Message inputs, cotangents, zeros;
  Tape tape;
  std::vector<Value> leaves;     ///< of inputs
  std::vector<int32_t> outputs;  ///< ids of what was sent on
  std::unique_ptr<PipelineStep> step;
  std::optional<Backward> backward;
};

/// The sends in flight to one neighbour: at most `held` messages.
class SendQueue {
 public:
  explicit SendQueue(int held) : held_(static_cast<size_t>(held)) {}

  /// Sends tensors as soon as fewer than `held` messages are in flight. `state` and `values` keep their
  /// buffers alive.
  void send(std::shared_ptr<MicroBatchState> state, std::vector<Value> values,
            const std::vector<Tensor>& tensors, Communicator& group, int to) {
    while (sends_.size() >= held_) wait_oldest();
    sends_.push_back({std::move(state), std::move(values), {}});
    if (sends_.back().state->tape.options().device == DeviceKind::null) return;
    PendingSend& send = sends_.back();
    for (const Tensor& t : tensors) send.pending.push_back(group.send(t, to));
  }
  void flush() {
    while (!sends_.empty()) wait_oldest();
  }

 private:
  struct PendingSend {
    std::shared_ptr<MicroBatchState> state;
    std::vector<Value> values;
    std::vector<Pending> pending;
  };
  void wait_oldest() {
    for (Pending& p : sends_.front().pending) p.wait();
    sends_.pop_front();
  }

  size_t held_;
  std::deque<PendingSend> sends_;
};

void add_to(const Tensor& sum, const Tensor& t) {
  if (t.device == DeviceKind::null) return;
  const HostCopy to(sum), from(t);
  for (int64_t i = 0; i < t.numel(); ++i) {
    if (t.dtype() == DType::f64) {
      to.as<double>()[i] += from.as<double>()[i];
    } else {
      INGOT_CHECK(t.dtype() == DType::f32, "{}", t.meta.str());
      to.as<float>()[i] += from.as<float>()[i];
    }
  }
  if (!sum.on_host()) upload(to.tensor(), sum);
}

/// All of a backward but the deferred weight gradients.
void run_segments(Backward& backward) {
  while (backward.advance()) {
  }
}

class Run {
 public:
  Run(const Decoder& decoder, const Precision& precision, const PipelineGroups& groups,
      const PipelineSchedule& schedule, const PipelineStepMaker& make, int64_t rows,
      const TapeOptions& options, Arena& arena)
      : decoder_(decoder),
        precision_(precision),
        groups_(groups),
        layout_(groups.layout()),
        shape_(schedule.shape),
        make_(make),
        rows_(rows),
        options_(options),
        arena_(arena),
        table_(schedule.ranks[static_cast<size_t>(groups.stage())]),
        forward_out_(shape_.messages_held()),
        backward_out_(shape_.messages_held()) {
    options_.defer_weight_gradients = std::any_of(table_.begin(), table_.end(), [](const ScheduleEntry& e) {
      return e.work.kind == WorkKind::backward_weight;
    });
  }

  InterleavedPasses::Waits run(std::span<ScheduleObserver* const> observers) {
    for (size_t i = 0; i < table_.size(); ++i) {
      if (i == 0) post_receives(table_[0]);
      if (i + 1 < table_.size()) post_receives(table_[i + 1]);
      for (ScheduleObserver* o : observers) o->before_entry(std::span(table_).subspan(i));
      execute(table_[i]);
      for (ScheduleObserver* o : observers) o->after_entry(table_[i]);
    }
    forward_out_.flush();
    backward_out_.flush();
    return passes_.waits();
  }

 private:
  int last_stage() const { return static_cast<int>(layout_.stages.size()) - 1; }
  int next_rank() const { return (groups_.stage() + 1) % groups_.stages(); }
  int previous_rank() const { return (groups_.stage() + groups_.stages() - 1) % groups_.stages(); }
  const StageParts& parts_of(int stage) const { return layout_.stages[static_cast<size_t>(stage)]; }
  /// The live values before a virtual stage.
  std::vector<TensorMeta> metas_before(int stage) const {
    const int64_t depths = predicted_depths(decoder_.config(), options_);
    return decoder_.boundaries(precision_, depths).at(position_before(parts_of(stage))).metas(rows_);
  }
  std::shared_ptr<MicroBatchState>& state(const Work& w) { return states_.at({w.micro_batch, w.chunk}); }

  void post_receives(const ScheduleEntry& e) {
    post_receives(e.work);
    if (e.beside) post_receives(*e.beside);
  }

  /// Posts the receives of what a work reads.
  void post_receives(const Work& w) {
    const int stage = shape_.virtual_stage(groups_.stage(), w.chunk);
    if (w.kind == WorkKind::forward) {
      const auto f = std::make_shared<MicroBatchState>(arena_, options_, stage);
      states_.emplace(std::pair(w.micro_batch, w.chunk), f);
      if (stage > 0) f->inputs.receive(metas_before(stage), groups_.forward(), previous_rank());
    } else if (w.kind != WorkKind::backward_weight && stage < last_stage()) {
      state(w)->cotangents.receive(metas_before(stage + 1), groups_.backward(), next_rank());
    }
  }

  void execute(const ScheduleEntry& e) {
    if (e.beside) {
      Backward& backward = begin_backward(*state(*e.beside));
      state(e.work)->inputs.wait();
      passes_.run([&] { run_segments(backward); }, [&] { forward(e.work); });
      return end_backward(*e.beside);
    }
    switch (e.work.kind) {
      case WorkKind::forward:
        return forward(e.work);
      case WorkKind::backward:
      case WorkKind::backward_input:
        run_segments(begin_backward(*state(e.work)));
        return end_backward(e.work);
      case WorkKind::backward_weight:
        state(e.work)->backward->run_deferred();
        states_.erase({e.work.micro_batch, e.work.chunk});
    }
  }

  void forward(const Work& w) {
    const std::shared_ptr<MicroBatchState> f = state(w);
    f->inputs.wait();
    f->step = make_(f->tape, w.micro_batch);
    Context& c = f->step->context();
    for (Communicator** group : {&c.tensor, &c.tokens, &c.expert, &c.expert_across, &c.expert_inside,
                                 &c.context, &c.context_inner, &c.context_outer})
      *group = passes_.yield_while_waiting(*group);
    for (const Tensor& t : f->inputs.tensors()) f->leaves.push_back(f->tape.leaf(t, true));
    std::vector<Value> live = f->step->forward(parts_of(f->stage), f->leaves);
    if (f->stage < last_stage()) send_on(f, std::move(live));
    if (!options_.record) states_.erase({w.micro_batch, w.chunk});
  }

  void send_on(const std::shared_ptr<MicroBatchState>& f, std::vector<Value> values) {
    const std::vector<TensorMeta> expected = metas_before(f->stage + 1);
    std::vector<Tensor> tensors;
    for (const Value& v : values) {
      const TensorMeta& meta = expected.at(tensors.size());
      INGOT_CHECK(v.meta().shape == meta.shape && v.dtype() == meta.dtype,
                  "value {} before stage {}: {}, not {}", tensors.size(), f->stage + 1, v.meta().str(),
                  meta.str());
      f->outputs.push_back(v.id());
      tensors.push_back(v.tensor());
    }
    forward_out_.send(f, std::move(values), tensors, groups_.forward(), next_rank());
  }

  Backward& begin_backward(MicroBatchState& f) {
    f.cotangents.wait();
    const std::vector<Tensor>& d = f.cotangents.tensors();
    const auto first = [&](size_t i) {  // one value can be live under two names, whose cotangents add up
      return static_cast<size_t>(std::find(f.outputs.begin(), f.outputs.end(), f.outputs[i]) -
                                 f.outputs.begin());
    };
    for (size_t i = 0; i < d.size(); ++i)
      if (first(i) < i) add_to(d[first(i)], d[i]);
    for (size_t i = 0; i < d.size(); ++i)
      if (first(i) == i) f.tape.seed(Value(&f.tape, f.outputs[i]), d[i]);
    return f.backward.emplace(f.tape);
  }

  /// Sends the cotangents of what the stage received.
  void end_backward(const Work& w) {
    const std::shared_ptr<MicroBatchState> f = state(w);
    if (w.kind == WorkKind::backward) states_.erase({w.micro_batch, w.chunk});
    if (f->stage == 0) return;
    std::vector<Tensor> tensors;
    for (const Value& leaf : f->leaves) {
      Tensor d = f->tape.gradient(leaf);
      if (!d.defined()) {  // neither this stage nor a later one reads the value
        d = f->zeros.add(leaf.meta());
        set_zero(d);
      }
      tensors.push_back(d);
    }
    backward_out_.send(f, {}, tensors, groups_.backward(), previous_rank());
  }

  const Decoder& decoder_;
  Precision precision_;
  const PipelineGroups& groups_;
  const PipelineLayout& layout_;
  const PipelineShape& shape_;
  const PipelineStepMaker& make_;
  int64_t rows_;
  TapeOptions options_;
  Arena& arena_;
  const std::vector<ScheduleEntry>& table_;
  InterleavedPasses passes_;
  std::map<std::pair<int, int>, std::shared_ptr<MicroBatchState>> states_;
  SendQueue forward_out_, backward_out_;
};

}  // namespace

Pipeline::Pipeline(const Decoder& decoder, const Precision& precision, const PipelineGroups& groups,
                   PipelineSchedule schedule)
    : decoder_(decoder), precision_(precision), groups_(groups), schedule_(std::move(schedule)) {
  const PipelineLayout& layout = groups.layout();
  if (schedule_.shape.stages != layout.ranks || schedule_.shape.chunks != layout.chunks())
    fail("a schedule of {} for the pipeline layout '{}' over {} ranks", schedule_.shape.str(), layout.str(),
         layout.ranks);
}

InterleavedPasses::Waits Pipeline::run(const PipelineStepMaker& make, int64_t rows,
                                       const TapeOptions& options, Arena& arena,
                                       std::span<ScheduleObserver* const> observers) const {
  return Run(decoder_, precision_, groups_, schedule_, make, rows, options, arena).run(observers);
}

}  // namespace ingot
