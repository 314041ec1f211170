// See accuracy.h.
#include "report/accuracy.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/run_record.h"
#include "report/table.h"

namespace ingot {

std::vector<StartAccuracy> read_accuracy(FileSystem& fs, const std::vector<std::string>& folders) {
  std::vector<StartAccuracy> found;
  for (const std::string& folder : folders) {
    if (!fs.exists(folder + "/" + run_files::kRecord))
      throw Error(fmt::format("'{}' is no folder of a run: it has no {}", folder, run_files::kRecord),
                  "name the folders of runs, e.g. runs/first");
    const RunRecord record = read_run_record(fs, folder);
    const size_t before = found.size();
    for (size_t i = 0; i < record.starts().size(); ++i) {
      const RunRecord::Start& start = record.starts()[i];
      if (start.predictions.empty()) continue;
      const RunRecord::Value* ranks = start.find("ranks");
      const int64_t* count = ranks != nullptr ? std::get_if<int64_t>(ranks) : nullptr;
      found.push_back({folder, static_cast<int>(i) + 1, count != nullptr ? *count : 1, start.predictions});
    }
    if (found.size() == before)
      throw Error(fmt::format("the run in '{}' has measured nothing: it still trains, was killed, or an "
                              "earlier version made it",
                              folder),
                  "let it end, or stop it with Ctrl-C; `ingot run " + folder + "` resumes it");
  }
  return found;
}

std::string to_text(const std::vector<StartAccuracy>& runs) {
  Table table({words("run"),
               {.title = "start"},
               {.title = "ranks"},
               words("what"),
               words("predicted"),
               words("measured"),
               number("ratio", 3),
               words("")});
  int known = 0, within = 0;
  for (const StartAccuracy& r : runs)
    for (const Prediction& p : worst_of_each(r.predictions)) {
      const std::optional<double> ratio = p.ratio();
      known += ratio.has_value(), within += ratio && !p.is_off();
      table.add({r.run, int64_t{r.start}, r.ranks, name_of(p), amount_of(p, p.predicted),
                 amount_of(p, p.measured), ratio ? Cell(*ratio) : Cell(),
                 p.is_off() ? "off; most of it: " + p.largest : p.missing});
    }
  return table.text() +
         fmt::format("{} of {} within their bounds: memory 5 % or 64 MiB, a step 15 %; others have none\n",
                     within, known);
}

std::string to_json(const std::vector<StartAccuracy>& runs) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const StartAccuracy& r : runs)
    for (const Prediction& p : r.predictions) {
      nlohmann::ordered_json entry{
          {"run", r.run}, {"start", r.start}, {"ranks", r.ranks}, {"what", name_of(p.what)}};
      if (!p.of.empty()) entry["of"] = p.of;
      if (p.predicted) entry["predicted"] = *p.predicted;
      if (p.measured) entry["measured"] = *p.measured;
      if (p.ratio()) entry["ratio"] = *p.ratio();
      entry["off"] = p.is_off();
      if (!p.largest.empty()) entry["largest"] = p.largest;
      if (!p.missing.empty()) entry["missing"] = p.missing;
      all.push_back(std::move(entry));
    }
  return all.dump(2);
}

}  // namespace ingot
