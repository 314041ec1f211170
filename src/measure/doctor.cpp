// See doctor.h: the order of the findings, and how they are shown.
#include "measure/doctor.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "measure/doctor_parts.h"
#include "report/table.h"

namespace ingot {

namespace doctor {

Finding fact(std::string topic, std::string text, std::string remedy) {
  const auto level = remedy.empty() ? Finding::Level::ok : Finding::Level::note;
  return {level, std::move(topic), std::move(text), std::move(remedy)};
}

Finding problem(std::string topic, std::string text, std::string remedy) {
  return {Finding::Level::problem, std::move(topic), std::move(text), std::move(remedy)};
}

std::string line_of(const std::string& root, const std::string& path) {
  std::ifstream file(root + path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string field_of(const std::string& root, const std::string& path, const std::string& key) {
  std::ifstream file(root + path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find_first_not_of(" \t", key.size());
    if (colon == line.npos || line[colon] != ':') continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == line.npos ? "" : line.substr(value);
  }
  return "";
}

}  // namespace doctor

std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings;
  doctor::examine_libraries(findings);
  doctor::examine_processor(options, findings);
  doctor::examine_memory(options, findings);
  doctor::examine_devices(options, findings);
  doctor::examine_disk(options, findings);
  doctor::examine_sandbox(options, findings);
  return findings;
}

namespace {

int count(const std::vector<Finding>& findings, Finding::Level level) {
  int n = 0;
  for (const Finding& f : findings) n += f.level == level;
  return n;
}

}  // namespace

bool any_problem(const std::vector<Finding>& findings) {
  return count(findings, Finding::Level::problem) > 0;
}

std::string to_text(const std::vector<Finding>& findings) {
  Table table({words(""), words(""), words("")});
  for (const Finding& f : findings) {
    table.add({name_of(f.level), f.topic, f.text});
    if (!f.remedy.empty()) table.add({{}, {}, "-> " + f.remedy});
  }
  std::string text = table.text();
  const int problems = count(findings, Finding::Level::problem),
            notes = count(findings, Finding::Level::note);
  text += problems > 0 ? count_of(problems, "thing") + " will not work" : "everything works";
  return text + (notes > 0 ? "; " + count_of(notes, "note") + "\n" : "\n");
}

std::string to_json(const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Finding& f : findings)
    list.push_back({{"level", name_of(f.level)}, {"topic", f.topic}, {"text", f.text}, {"remedy", f.remedy}});
  const Json all{{"format", 1}, {"works", !any_problem(findings)}, {"findings", std::move(list)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ingot
