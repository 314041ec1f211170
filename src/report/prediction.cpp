// See prediction.h.
#include "report/prediction.h"

#include <fmt/core.h>

#include <cmath>

#include "base/progress.h"

namespace ingot {
namespace {

constexpr double kMemoryShare = 0.05, kMemoryBytes = 64 << 20, kTimeShare = 0.15;

/// How far off: the same for half and for twice.
double distance(const Prediction& p) {
  const std::optional<double> ratio = p.ratio();
  return ratio && *ratio > 0 ? std::fabs(std::log(*ratio)) : -1;
}

std::string ratio_text(const Prediction& p) {
  const std::optional<double> ratio = p.ratio();
  return ratio ? fmt::format("{:.3f}", *ratio) : "";
}

}  // namespace

std::optional<double> Prediction::ratio() const {
  if (!predicted || !measured || *predicted <= 0) return std::nullopt;
  return *measured / *predicted;
}

bool Prediction::is_off() const {
  const std::optional<double> r = ratio();
  if (!r) return false;
  const double off = std::fabs(*r - 1);
  if (what == Predicted::memory) return off > kMemoryShare && off * *predicted > kMemoryBytes;
  return what == Predicted::step && off > kTimeShare;
}

std::string name_of(const Prediction& p) {
  return p.of.empty() ? name_of(p.what) : fmt::format("{} of {}", name_of(p.what), p.of);
}

std::string amount_of(const Prediction& p, const std::optional<double>& value) {
  if (!value) return "not known";
  if (p.in_bytes()) return format_bytes(*value);
  // Three digits, since two times are compared.
  return *value < 0.1   ? fmt::format("{:.3g} ms", 1e3 * *value)
         : *value < 100 ? fmt::format("{:.3g} s", *value)
                        : format_seconds(*value);
}

std::vector<Prediction> worst_of_each(std::span<const Prediction> predictions) {
  std::vector<Prediction> worst;
  for (size_t kind = 0; kind < enum_count<Predicted>; ++kind) {
    const Prediction* found = nullptr;
    int count = 0;
    for (const Prediction& p : predictions) {
      if (static_cast<size_t>(p.what) != kind) continue;
      ++count;
      if (found == nullptr || distance(p) > distance(*found)) found = &p;
    }
    if (found == nullptr) continue;
    worst.push_back(*found);
    if (count > 1) worst.back().of += fmt::format(" (furthest off of {})", count);
  }
  return worst;
}

std::vector<std::string> describe(std::span<const Prediction> predictions) {
  std::vector<std::string> lines;
  for (const bool of_checkpoints : {false, true}) {
    std::string text;
    for (const Prediction& p : predictions) {
      if ((p.what >= Predicted::checkpoint) != of_checkpoints) continue;
      if (!p.predicted && !p.measured) continue;
      text += text.empty() ? "" : "; ";
      text += name_of(p) + ": ";
      if (p.predicted) text += amount_of(p, p.predicted) + " predicted, ";
      if (p.measured)
        text += amount_of(p, p.measured) + (p.what == Predicted::memory ? " measured at most" : " measured");
      else
        text += "not measured";
      if (!p.measured || p.what == Predicted::step) text += p.missing.empty() ? "" : " (" + p.missing + ")";
    }
    if (!text.empty()) lines.push_back(std::move(text));
  }
  return lines;
}

std::string warning_of(std::span<const Prediction> predictions) {
  const Prediction* worst = nullptr;
  for (const Prediction& p : predictions)
    if (p.is_off() && (worst == nullptr || distance(p) > distance(*worst))) worst = &p;
  if (worst == nullptr) return "";
  return fmt::format("the plan was off: {} was {}, {:.0f} % {} than the predicted {}{}", name_of(*worst),
                     amount_of(*worst, worst->measured), 100 * std::fabs(*worst->ratio() - 1),
                     *worst->ratio() > 1 ? "more" : "less", amount_of(*worst, worst->predicted),
                     worst->largest.empty() ? "" : ", of which the most is " + worst->largest);
}

Table prediction_table(std::span<const Prediction> predictions, const std::string& title) {
  Table table(
      {words("what"), words("predicted"), words("measured"), words("measured / predicted"), words("")},
      title);
  for (const Prediction& p : predictions)
    table.add({name_of(p), amount_of(p, p.predicted), amount_of(p, p.measured), ratio_text(p),
               p.missing.empty() && !p.largest.empty() ? "most of it: " + p.largest : p.missing});
  return table;
}

}  // namespace ingot
