// See profile_run.h.
#include "measure/profile_run.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/processor_time.h"
#include "checkpoint/reader.h"
#include "comm/agree.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "exchange/stored_model.h"
#include "train/phase_sampler.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

/// Measurements on each side of the steps.
constexpr int64_t kUncounted = 3;  ///< steps that make graphs
constexpr int kPeaks = 3;
/// Saves that are not counted, of runs that keep one checkpoint: later ones write into memory that those
/// which were deleted had.
constexpr int64_t kFreshSaves = 2;
constexpr int64_t kQuietSteps = 1, kWritingSteps = 1;  ///< before each save, and beside its writing
constexpr double kShared = 0.1;                        ///< seconds of each, where several ranks measure

size_t phase_named(const Recipe& recipe, const std::string& name) {
  std::string names;
  for (size_t i = 0; i < recipe.phases.size(); ++i) {
    if (recipe.phases[i].name == name) return i;
    names += (i > 0 ? ", " : "") + recipe.phases[i].name;
  }
  throw Error(fmt::format("--phase={}: the recipe has no such phase", name), "its phases: " + names);
}

/// How far a run has come.
struct RunPosition {
  size_t phase = 0;
  int64_t step = 0, level = 0;  ///< within the phase
};

RunPosition position_of(const SavedRun& saved, const Recipe& recipe) {
  RunPosition p{std::min(saved.phase, recipe.phases.size() - 1), saved.step, saved.progress.level};
  for (size_t i = 0; i < p.phase; ++i) p.step -= recipe.phases[i].steps;
  if (p.step >= recipe.phases[p.phase].steps && p.phase + 1 < recipe.phases.size()) p = {p.phase + 1, 0, 0};
  return p;
}

int64_t steps_of_saves(const ProfileOptions& o) {
  return o.saves > 0 ? (kQuietSteps + kWritingSteps) * (kFreshSaves + o.saves) : 0;
}

/// Makes steps like those at this position the whole run.
void keep_only(Recipe& r, const RunPosition& at, int64_t steps) {
  PhaseConfig s = r.phases[at.phase];
  s.lr = r.learning_rate(at.phase, std::min(at.step, s.steps - 1)) * s.rate_factor(at.level);
  s.rope_theta = r.rope_theta_of(at.phase);
  s.window_growth = 0;
  s.batch = s.batch_at(at.level);
  s.batches.clear();
  s.schedule = ScheduleKind::constant;
  s.warmup = 0;
  s.segments.clear();
  s.continues = false;
  s.steps = steps;
  r.phases = {std::move(s)};
  r.samples.prompts.emplace();
  r.checkpoint.keep_last = 1;
}

/// A folder that all ranks see, removed by rank 0 when all have left it.
class SharedFolder {
 public:
  SharedFolder(Communicator& group, const std::string& where) : group_(group) {
    path_ = agree(
        &group, [] { return std::string(); },
        [&](const auto&) {
          std::string name = (where.empty() ? std::filesystem::temp_directory_path().string() : where) +
                             "/ingot-profile-XXXXXX";
          if (::mkdtemp(name.data()) == nullptr)
            throw Error(fmt::format("cannot make the folder '{}': {}", name, std::strerror(errno)),
                        "name another with --scratch");
          return name;
        });
  }
  ~SharedFolder() {
    std::error_code ignored;
    if (group_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  Communicator& group_;
  std::string path_;
};

void measure_limits(Communicator& group, RankProfile& rank) {
  if (group.size() == 1) {
    for (int i = 0; i < kPeaks; ++i) {
      const MachinePeak p = machine_peak();
      rank.peak_gflops.push_back(p.fma_gflops);
      rank.read_gbs.push_back(p.read_gbs);
    }
    return;
  }
  // All at once and long enough for turns: ranks may share cores.
  for (int i = 0; i < kPeaks; ++i) {
    const double begin = agree_on_begin(group), busy = processor_seconds();
    rank.peak_gflops.push_back(shared_fma_gflops(kShared, 0, begin));
    rank.processor_share.push_back((processor_seconds() - busy) / (kShared * num_threads()));
    rank.read_gbs.push_back(shared_read_gbs(kShared, 0, agree_on_begin(group)));
  }
  group.barrier();
}

/// A save follows a step that nothing is written beside, as in a run.
SaveTimes measure_saves(Communicator& group, Trainer& trainer, int64_t saves) {
  std::vector<double> pauses, writes;
  double bytes = 0;
  for (int64_t i = 0; i < kFreshSaves + saves; ++i) {
    trainer.run_steps(kQuietSteps);
    const auto [pause, report] = trainer.save_beside_steps(kWritingSteps);
    bytes = static_cast<double>(report.bytes);
    if (i >= kFreshSaves) pauses.push_back(pause), writes.push_back(report.write_seconds);
  }
  const double own[3] = {bytes, spread_of(pauses).median, spread_of(writes).median};
  std::vector<double> all(static_cast<size_t>(3 * group.size()));
  group.all_gather(Tensor::of(own, {3}), Tensor::of(all.data(), {3 * group.size()})).wait();
  SaveTimes t;
  for (size_t r = 0; r < all.size(); r += 3) {
    const auto of_rank = static_cast<int64_t>(all[r]);
    t.bytes += of_rank, t.most = std::max(t.most, of_rank);
    t.pause = std::max(t.pause, all[r + 1]), t.write = std::max(t.write, all[r + 2]);
  }
  return t;
}

/// Steps whose ops nobody watches, after the others: the first make graphs, the rest is counted.
int64_t counted_steps(const ProfileOptions& o) {
  return device_of(compute_device()).captures_graphs() ? kUncounted + o.steps : 0;
}

}  // namespace

ProfiledSteps profiled_steps(FileSystem& fs, const std::string& path, const std::vector<std::string>& fields,
                             const ProfileOptions& o) {
  if (o.steps < 1 || o.warm_up < 0)
    throw Error(fmt::format("{} steps after {} of warm-up", o.steps, o.warm_up), "give at least one step");
  std::error_code broken;
  const bool run = std::filesystem::is_directory(path, broken);
  Recipe r = load_run(fs, path, fields);
  RunPosition at;
  if (run) {
    const auto newest =
        CheckpointReader::open_newest(fs, path + "/" + run_files::kCheckpoints, Verify::structure);
    if (newest) at = position_of(SavedRun::of(*newest), r), r.run.start_from = path;
  }
  if (!o.phase.empty()) at = {phase_named(r, o.phase), 0, 0};
  const int64_t window = r.window_at(at.phase, at.step);
  keep_only(r, at, o.warm_up + o.steps + counted_steps(o) + steps_of_saves(o));
  if (run && r.run.start_from == path) {  // its phases so far have changed these
    const ModelConfig stored = open_stored_model(fs, path, Verify::structure).config;
    r.model.rope_theta = stored.rope_theta, r.model.window = stored.window;
  }
  return {std::move(r), window};
}

StepRecorder::StepRecorder(double origin, int64_t warm_up)
    : origin_(origin), warm_up_(warm_up), listener_([this](const WaitSpan& wait) { waited(wait); }) {}

void StepRecorder::end_phase(double now) {
  if (!step_.phases.empty()) step_.phases.back().end = now;
  // Waits after the last op belong to its segment.
  std::vector<OpSpan>& ops = step_.ops;
  for (size_t i = unplaced_; i < ops.size() && inside_ && unplaced_ > 0; ++i)
    ops[i].segment = ops[unplaced_ - 1].segment, ops[i].layer = ops[unplaced_ - 1].layer,
    ops[i].pass = ops[unplaced_ - 1].pass;
  unplaced_ = ops.size();
}

void StepRecorder::enters(StepPart phase) {
  const double now = monotonic_seconds() - origin_;
  end_phase(now);
  if (phase == StepPart::data) {
    std::vector<DeviceCount> now_counted = counts_of(device_of(compute_device()).counters());
    if (!step_.phases.empty()) {
      step_.end = now, step_.processor = processor_seconds() - busy_;
      for (const OpSpan& op : step_.ops) step_.processor -= op.processor;
      if (--warm_up_ < 0) {
        steps_.push_back(std::move(step_));
        for (size_t i = 0; i < now_counted.size(); ++i)
          device_work_[i].count += now_counted[i].count - before_step_[i].count;
      }
    }
    before_step_ = std::move(now_counted);
    step_ = {};
    step_.begin = now, busy_ = processor_seconds();
    unplaced_ = 0;
  }
  inside_ = phase == StepPart::passes;
  if (inside_) step_.ops.reserve(steps_.empty() ? 0 : steps_.back().ops.size());
  step_.phases.push_back({phase, now, now});
}

void StepRecorder::ran(const OpRun& run) {
  OpSpan s;
  s.op = run.op.name, s.segment = run.segment.name, s.layer = run.segment.layer;
  s.pass = pass_of(run);
  s.what = time_of(run.op);
  s.begin = run.begin - origin_, s.end = run.end - origin_;
  s.flops = run.flops, s.bytes = run.bytes, s.wire_bytes = run.wire_bytes;
  s.sizes = sizes_of(run);
  for (size_t i = unplaced_; i < step_.ops.size(); ++i) {  // waits before it, for it, and inside of it
    OpSpan& wait = step_.ops[i];
    wait.segment = s.segment, wait.layer = s.layer, wait.pass = s.pass;
    if (wait.begin >= s.begin) s.waited += wait.end - wait.begin;
  }
  step_.ops.push_back(std::move(s));
  unplaced_ = step_.ops.size();
}

void StepRecorder::waited(const WaitSpan& wait) {
  if (step_.phases.empty()) return;
  while (step_.ops.size() > unplaced_ && step_.ops.back().begin >= wait.begin - origin_)
    step_.ops.pop_back();  // parts of this wait
  OpSpan s;
  s.op = "wait", s.what = TimeOf::exchanges;
  s.begin = wait.begin - origin_, s.end = wait.end - origin_, s.processor = wait.processor;
  step_.ops.push_back(std::move(s));
}

void StepCounter::enters(StepPart part) {
  if (part == StepPart::data && --warm_up_ == -1) begin_ = counts_of(device_of(compute_device()).counters());
}

std::vector<DeviceCount> StepCounter::take() {
  std::vector<DeviceCount> counts = counts_of(device_of(compute_device()).counters());
  for (size_t i = 0; i < begin_.size(); ++i) counts[i].count -= begin_[i].count;
  return counts;
}

std::vector<StepSpan> StepRecorder::take() {
  enters(StepPart::data);
  step_ = {};
  return std::move(steps_);
}

ProfileReport profile_run(FileSystem& fs, const ProfiledSteps& steps, const ProfileOptions& o, World& world) {
  std::vector<int> all;
  for (int r = 0; r < world.ranks(); ++r) all.push_back(r);
  const std::unique_ptr<Communicator> group = world.group("profile", all);
  const SharedFolder folder(*group, o.scratch);
  Recipe own = steps.recipe;
  own.run.folder = folder.path() + "/run";
  ProfileReport report;
  RankProfile mine;
  mine.rank = world.rank(), mine.threads = num_threads();
  {
    Trainer trainer(fs, own, StartMode::fresh, &world);
    trainer.hold_window(steps.window);
    const PhaseConfig& phase = own.phases.front();
    report.phase = phase.name, report.model = own.model.preset, report.precision = name_of(own.run.precision);
    report.isa = isa_name(active_isa());
    report.parameters = count_parameters(trainer.model().decoder()).total;
    report.batch = phase.batch, report.length = phase.sequence;
    mine.update = update_cost(trainer.engine().optimizer());
    measure_limits(*group, mine);
    StepRecorder recorder(monotonic_seconds(), o.warm_up);
    trainer.observe(&recorder);
    trainer.run_steps(o.warm_up + o.steps);
    mine.steps = recorder.take();
    report.device = compute_device();
    report.device_work = recorder.device_work();
    if (const int64_t more = counted_steps(o); more > 0) {
      StepCounter counter(kUncounted);
      trainer.observe(&counter);
      trainer.run_steps(more);
      report.device_work = counter.take();
    }
    trainer.observe(nullptr);
    if (o.saves > 0) report.saves = measure_saves(*group, trainer, o.saves);
    report.micro_batch = phase.micro(std::max<int64_t>(1, own.parallel.data));
    measure_limits(*group, mine);
  }
  for (const std::string& text : all_gather_text(*group, write_profile(mine)))
    report.ranks.push_back(read_profile(text));
  group->barrier();
  return report;
}

}  // namespace ingot
