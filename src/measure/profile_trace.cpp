// See profile.h: the trace, and profiles as text between processes.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "measure/profile.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

class Trace {
 public:
  explicit Trace(double zero) : zero_(zero) {}

  void name_track(const char* what, int rank, const std::string& name) {
    events_.push_back({{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", rank}, {"args", {{"name", name}}}});
  }
  /// Microseconds of whole nanoseconds: rounded alike, spans stay inside of those that hold them.
  void span(const std::string& name, const char* kind, int rank, double begin, double end,
            Json args = Json::object()) {
    const double from = nanoseconds(begin), to = nanoseconds(end);
    Json e{{"name", name},
           {"cat", kind},
           {"ph", "X"},
           {"pid", 0},
           {"tid", rank},
           {"ts", from / 1e3},
           {"dur", (to - from) / 1e3}};
    if (!args.empty()) e["args"] = std::move(args);
    events_.push_back(std::move(e));
  }
  std::string text() && {
    return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}.dump() + "\n";
  }

 private:
  double nanoseconds(double t) const { return std::round(1e9 * (t - zero_)); }
  const double zero_;
  Json events_ = Json::array();
};

bool forward(const OpSpan& op) {
  return op.pass == OpPass::forward;
}

/// Runs of ops of one direction, in them runs of one segment, in them the ops. Waits inside of ops have come
/// before them.
void add_passes(Trace& trace, int rank, const std::vector<OpSpan>& ops) {
  const auto runs = [&](size_t first, size_t last, const auto& same, const auto& add) {
    for (size_t i = first; i < last;) {
      size_t end = i + 1;
      double begin = ops[i].begin;
      while (end < last && same(ops[i], ops[end])) ++end;
      for (size_t k = i; k < end; ++k) begin = std::min(begin, ops[k].begin);
      add(i, end, begin, ops[end - 1].end);
      i = end;
    }
  };
  const auto same_pass = [](const OpSpan& a, const OpSpan& b) { return forward(a) == forward(b); };
  const auto same_segment = [](const OpSpan& a, const OpSpan& b) {
    return a.segment == b.segment && a.layer == b.layer;
  };
  runs(0, ops.size(), same_pass, [&](size_t first, size_t last, double begin, double end) {
    trace.span(forward(ops[first]) ? "forward" : "backward", "pass", rank, begin, end);
    runs(first, last, same_segment, [&](size_t from, size_t to, double from_time, double to_time) {
      const OpSpan& o = ops[from];
      trace.span(o.layer >= 0 ? fmt::format("{} {}", o.segment, o.layer) : o.segment, "segment", rank,
                 from_time, to_time);
      for (size_t i = from; i < to; ++i) {
        const OpSpan& op = ops[i];
        Json args{{"pass", name_of(op.pass)}};
        if (op.flops > 0) args["gflops"] = 1e-9 * op.flops / std::max(1e-9, op.seconds());
        if (op.bytes > 0) args["gigabytes_per_second"] = 1e-9 * op.bytes / std::max(1e-9, op.seconds());
        if (op.wire_bytes > 0) args["bytes_sent"] = op.wire_bytes;
        trace.span(op.op, name_of(op.what), rank, op.begin, op.end, std::move(args));
      }
    });
  });
}

}  // namespace

std::string trace_json(const ProfileReport& r) {
  double zero = INFINITY;
  for (const RankProfile& rank : r.ranks) zero = std::min(zero, rank.steps.front().begin);
  Trace trace(zero);
  trace.name_track("process_name", 0, "ingot profile " + r.of);
  for (const RankProfile& rank : r.ranks) {
    trace.name_track("thread_name", rank.rank, fmt::format("rank {}", rank.rank));
    for (size_t s = 0; s < rank.steps.size(); ++s) {
      const StepSpan& step = rank.steps[s];
      trace.span(fmt::format("step {}", s + 1), "step", rank.rank, step.begin, step.end);
      for (const PhaseSpan& p : step.phases) {
        trace.span(name_of(p.phase), "phase", rank.rank, p.begin, p.end);
        std::vector<OpSpan> inside;
        for (const OpSpan& op : step.ops)
          if (op.begin >= p.begin && op.end <= p.end) inside.push_back(op);
        if (p.phase == StepPart::passes)
          add_passes(trace, rank.rank, inside);
        else
          for (const OpSpan& op : inside) trace.span(op.op, name_of(op.what), rank.rank, op.begin, op.end);
      }
    }
  }
  return std::move(trace).text();
}

std::string write_profile(const RankProfile& p) {
  Json steps = Json::array();
  for (const StepSpan& s : p.steps) {
    Json phases = Json::array(), ops = Json::array();
    for (const PhaseSpan& phase : s.phases)
      phases.push_back({static_cast<int>(phase.phase), phase.begin, phase.end});
    for (const OpSpan& o : s.ops)
      ops.push_back({o.op, o.segment, o.layer, static_cast<int>(o.pass), static_cast<int>(o.what), o.begin,
                     o.end, o.waited, o.flops, o.bytes, o.wire_bytes, o.sizes.m, o.sizes.n, o.sizes.k,
                     o.sizes.width, o.sizes.length});
    steps.push_back({s.begin, s.end, s.processor, std::move(phases), std::move(ops)});
  }
  return Json{{"rank", p.rank},
              {"threads", p.threads},
              {"update", {p.update.elements, p.update.flops, p.update.bytes, p.update.bf16, p.update.depth}},
              {"peak", p.peak_gflops},
              {"read", p.read_gbs},
              {"processor_share", p.processor_share},
              {"steps", std::move(steps)}}
      .dump();
}

RankProfile read_profile(const std::string& text) {
  const Json all = Json::parse(text);
  RankProfile p;
  p.rank = all["rank"], p.threads = all["threads"];
  p.update = {all["update"][0], all["update"][1], all["update"][2], all["update"][3], all["update"][4]};
  p.peak_gflops = all["peak"].get<std::vector<double>>(), p.read_gbs = all["read"].get<std::vector<double>>();
  p.processor_share = all["processor_share"].get<std::vector<double>>();
  for (const Json& step : all["steps"]) {
    StepSpan s;
    s.begin = step[0], s.end = step[1], s.processor = step[2];
    for (const Json& phase : step[3])
      s.phases.push_back({static_cast<StepPart>(phase[0].get<int>()), phase[1], phase[2]});
    for (const Json& o : step[4])
      s.ops.push_back({o[0], o[1], o[2], static_cast<OpPass>(o[3].get<int>()),
                       static_cast<TimeOf>(o[4].get<int>()), o[5], o[6], o[7], o[8], o[9], o[10],
                       OpSizes{o[11], o[12], o[13], o[14], o[15]}});
    p.steps.push_back(std::move(s));
  }
  return p;
}

}  // namespace ingot
