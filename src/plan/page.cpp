// See page.h.
#include "plan/page.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/build_info.h"
#include "base/progress.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/step_figures.h"

namespace ingot {
namespace {

std::string lines_as_text(const std::string& text) {
  return "<div class=card><pre>" + escape_html(text) + "</pre></div>";
}

std::string amount(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string byte_bars(const std::string& title, const std::string& subtitle,
                      std::span<const MemoryPart> parts) {
  std::vector<Bar> bars;
  for (const auto& [name, bytes] : parts)
    if (bytes > 0) bars.push_back({name, amount(bytes), static_cast<double>(bytes)});
  return bars.empty() ? "" : draw_bars(title, subtitle, bars);
}

std::string memory_section(const RunPlan& plan, int rank) {
  const RankClass& shown = plan.class_of(rank);
  const std::string of =
      fmt::format("rank {}, stage {}", rank >= 0 ? rank : shown.ranks.front(), shown.plan.stage);
  std::vector<MemoryPart> parts = parts_of(shown.plan.memory), segments;
  parts.pop_back();  // their sum
  for (const auto& [name, bytes] : shown.plan.slab_by_segment) segments.push_back({name.c_str(), bytes});
  std::stable_sort(segments.begin(), segments.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  return "<h2>Memory</h2><div class=grid2>" +
         byte_bars("Memory of a rank", of + ", " + amount(shown.plan.memory.total()), parts) +
         byte_bars("Activations at their peak", of + ", phase '" + shown.plan.phase + "'", segments) +
         "</div><div class='scroll more'>" + class_table(plan).html() + "</div>";
}

/// Of a step with more passes the beginning is drawn.
constexpr size_t kMostSpans = 6000;

std::string step_timeline(const StepTime& step) {
  Timeline t{.title = "A step", .end = step.seconds};
  const size_t ranks = step.ranks.size();
  for (size_t r = 0; r < ranks; ++r)
    t.rows.emplace_back(fmt::format("stage {}", r), std::vector<TimelineSpan>{});
  std::vector<WorkSpan> spans = step.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const WorkSpan& a, const WorkSpan& b) { return a.begin < b.begin; });
  if (spans.size() > kMostSpans) {
    t.end = spans[kMostSpans].begin;
    spans.resize(kMostSpans);
  }
  t.subtitle = spans.size() < step.spans.size()
                   ? fmt::format("its first {} of {}", format_seconds(t.end), format_seconds(step.seconds))
                   : format_seconds(step.seconds);
  std::set<SpanOf> used;
  for (const WorkSpan& s : spans) {
    used.insert(s.what);
    const std::string pass =
        s.micro_batch < 0 ? "" : fmt::format(" of micro-batch {}, chunk {}", s.micro_batch, s.chunk);
    t.rows[static_cast<size_t>(s.rank)].second.push_back(
        {s.begin, s.end, static_cast<int>(s.what),
         fmt::format("{}{}, {} from {}", name_of(s.what), pass, format_seconds(s.end - s.begin),
                     format_seconds(s.begin))});
  }
  for (const SpanOf what : used) t.legend.emplace_back(name_of(what), static_cast<int>(what));
  return draw(t);
}

std::string time_section(const RunTime& t) {
  const auto purposes = purposes_of(t);
  return "<h2>Time</h2><div class=stack>" +
         draw_time_bars("A step by purpose",
                        fmt::format("of a rank of stage {}, which ends last", t.step.critical),
                        {purposes.begin(), purposes.end()}, t.step.seconds, 12) +
         step_timeline(t.step) + "</div>";
}

std::string search_section(const SearchResult& s) {
  Scatter scatter{
      .title = "Layouts that fit",
      .subtitle = "tokens per second of a device over its memory; the line joins those that none beats"};
  double least = 1e300, most = 0;
  for (const SearchResult::Layout& l : s.fitting) {
    const double gb = static_cast<double>(l.bytes) * 1e-9;
    least = std::min(least, gb), most = std::max(most, gb);
    scatter.points.push_back(
        {gb, l.tokens_per_second, l.family,
         fmt::format("{}: {:.0f} tokens/s, {:.1f} GB", l.text, l.tokens_per_second, gb)});
  }
  scatter.x_begin = fmt::format("{:.1f} GB", least), scatter.x_end = fmt::format("{:.1f} GB", most);
  std::string others;
  for (const auto& [family, reason] : s.rejected)
    others += fmt::format("<p><b>{}</b>: {}</p>", escape_html(family), escape_html(reason));
  if (!others.empty()) others = "<h3>Not among the best</h3><div class=card>" + others + "</div>";
  std::string fields;
  for (const std::string& f : s.best.front().fields) fields += f + "\n";
  return "<h2>Layouts</h2>" + draw(scatter) + "<div class='scroll more'>" + layout_table(s).html() +
         "</div><h3>Fields of the first</h3>" + lines_as_text(fields) + others;
}

}  // namespace

std::string render_plan_page(const PlanPage& p) {
  std::string tiles, body, facts = "a plan";
  const auto tile = [&](const std::string& value, const char* name) {
    tiles += fmt::format("<div class=tile><b>{}</b><span>{}</span></div>", escape_html(value), name);
  };
  if (p.plan != nullptr) {
    facts += " of " + count_of(p.plan->what.ranks, "rank");
    tile(format_count(static_cast<double>(p.plan->parameters.total)), "parameters");
    tile(format_count(static_cast<double>(p.plan->tokens())), "tokens a step");
    tile(amount(p.plan->fullest().plan.memory.total()), "fullest rank");
    tile(amount(p.plan->checkpoint_bytes), "checkpoint");
  }
  if (p.time != nullptr) {
    tile(format_seconds(p.time->step.seconds), "a step");
    tile(format_count(p.time->tokens_per_second), "tokens per second of a device");
    tile(fmt::format("{:.1f} %", 100 * p.time->utilisation), "of the dense peak");
  }
  if (!p.cluster.empty()) facts += " on " + p.cluster;
  if (!tiles.empty()) body += "<div class=tiles>" + tiles + "</div>";
  if (p.plan != nullptr) body += memory_section(*p.plan, p.rank);
  if (p.time != nullptr) body += time_section(*p.time);
  if (p.budget != nullptr) body += "<h2>Budget</h2>" + lines_as_text(to_text(*p.budget));
  if (p.search != nullptr) body += search_section(*p.search);
  if (p.plan != nullptr)
    body += "<h2>As text</h2>" +
            lines_as_text(to_text(*p.plan, p.rank) + (p.time != nullptr ? to_text(*p.time) : ""));
  return render_page(p.recipe, facts, build_info().version, body);
}

}  // namespace ingot
