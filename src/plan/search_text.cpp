// See search.h: what a search found, as a table, as text and as JSON.
#include <nlohmann/json.hpp>

#include "plan/search.h"
#include "report/table.h"

namespace ingot {

Table layout_table(const SearchResult& r) {
  Table table({words("layout"), number("step s", 3), number("tokens/s", 0), percent("of peak"),
               number("GB", 1, 1e-9)});
  for (const SearchResult::Layout& l : r.best)
    table.add({l.text, l.step_seconds, l.tokens_per_second, l.utilisation, static_cast<double>(l.bytes)});
  return table;
}

std::string to_text(const SearchResult& r) {
  std::string text = fmt::format("{} layouts: {} refused, {} too large, {} too slow, {} left\n", r.tried,
                                 r.refused, r.too_large, r.too_slow, r.fit) +
                     layout_table(r).text();
  std::string fields;
  for (const std::string& f : r.best.front().fields) fields += " " + f;
  text += "the first:" + fields + "\n";
  for (const auto& [family, reason] : r.rejected) text += fmt::format("not {}: {}\n", family, reason);
  return text;
}

std::string to_json(const SearchResult& r) {
  using Json = nlohmann::ordered_json;
  Json best = Json::array(), rejected = Json::array();
  for (const SearchResult::Layout& l : r.best)
    best.push_back({{"layout", l.text},
                    {"family", l.family},
                    {"fields", l.fields},
                    {"bytes", l.bytes},
                    {"step_seconds", l.step_seconds},
                    {"tokens_per_second_per_device", l.tokens_per_second},
                    {"utilisation", l.utilisation}});
  for (const auto& [family, reason] : r.rejected)
    rejected.push_back({{"family", family}, {"reason", reason}});
  return Json{{"format", 1},
              {"ranks", r.ranks},
              {"phase", r.phase},
              {"cluster", r.cluster},
              {"device_bytes", r.capacity},
              {"tried", r.tried},
              {"refused", r.refused},
              {"too_large", r.too_large},
              {"too_slow", r.too_slow},
              {"fit", r.fit},
              {"best", best},
              {"rejected", rejected}}
             .dump(2) +
         "\n";
}

}  // namespace ingot
