// See run_record.h.
#include "report/run_record.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "report/json_lines.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json parse_json(std::string_view text, const std::string& where) {
  const auto callback = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > 64) fail("{}: nested deeper than 64 levels", where);
    return true;
  };
  try {
    return Json::parse(text, callback);
  } catch (const Json::exception& error) {
    fail("{}: not valid JSON: {}", where, error.what());
  }
}

std::string utc_time(double wall) {
  const auto seconds = static_cast<std::time_t>(wall);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string sample_line(const Sample& sample) {
  const Json json = {{"step", sample.step}, {"prompt", sample.prompt}, {"text", sample.text}};
  return dump(json, -1) + "\n";
}

Sample parse_sample(std::string_view line, const std::string& where) {
  const Json json = parse_json(line, where);
  try {
    return {json.at("step").get<int64_t>(), json.at("prompt").get<std::string>(),
            json.at("text").get<std::string>()};
  } catch (const Json::exception& error) {
    fail("{}: not a sample: {}", where, error.what());
  }
}

}  // namespace

RunRecord RunRecord::of_this_machine(const std::string& run_name, double wall) {
  RunRecord record;
  record.set("run", "name", run_name);
  record.set("run", "started", utc_time(wall));
  const BuildInfo& build = build_info();
  record.set("build", "ingot", build.version);
  record.set("build", "commit", build.commit);
  record.set("build", "compiler", build.compiler);
  record.set("build", "type", build.build_type);
  record.set("build", "flags", build.flags);
  for (const auto& [name, version] : build.libraries) record.set("build", name, version);
  const MachineInfo machine = machine_info();
  record.set("machine", "cpu", machine.cpu);
  record.set("machine", "cores", machine.cores);
  record.set("machine", "memory_bytes", machine.memory_bytes);
  record.set("machine", "system", machine.system);
  return record;
}

RunRecord RunRecord::parse(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  if (!json.is_object()) fail("{}: expected an object of groups", where);
  RunRecord record;
  for (const auto& [group, entries] : json.items()) {
    if (group == "config") {
      record.config_json_ = dump(entries, 2);
      continue;
    }
    if (!entries.is_object())
      fail("{}: \"{}\": expected an object, found {}", where, group, entries.type_name());
    for (const auto& [name, value] : entries.items()) {
      if (value.is_string()) {
        record.set(group, name, value.get<std::string>());
      } else if (value.is_number_integer()) {
        record.set(group, name, value.get<int64_t>());
      } else if (value.is_number()) {
        record.set(group, name, value.get<double>());
      } else {
        fail("{}: \"{}\": \"{}\": expected a string or a number, found {}", where, group, name,
             value.type_name());
      }
    }
  }
  return record;
}

void RunRecord::set(const std::string& group, const std::string& name, Value value) {
  auto place = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.name == group; });
  if (place == groups_.end()) place = groups_.insert(groups_.end(), Group{group, {}});
  for (Entry& entry : place->entries)
    if (entry.name == name) {
      entry.value = std::move(value);
      return;
    }
  place->entries.push_back({name, std::move(value)});
}

const RunRecord::Value* RunRecord::find(const std::string& group, const std::string& name) const {
  for (const Group& g : groups_)
    if (g.name == group)
      for (const Entry& entry : g.entries)
        if (entry.name == name) return &entry.value;
  return nullptr;
}

void RunRecord::set_config(const ConfigNode& config) {
  config_toml_ = to_toml(config);
  config_json_ = to_json(config);
}

std::string RunRecord::json() const {
  Json json = Json::object();
  for (const Group& group : groups_)
    for (const Entry& entry : group.entries)
      std::visit([&](const auto& value) { json[group.name][entry.name] = value; }, entry.value);
  json["config"] = Json::parse(config_json_);
  return dump(json, 2) + "\n";
}

void append_sample(FileSystem& fs, const std::string& path, const Sample& sample) {
  const std::string line = sample_line(sample);
  const auto file = fs.open_append(path);
  file->append(line.data(), line.size());
  file->close();
}

std::vector<Sample> read_samples(FileSystem& fs, const std::string& path) {
  std::vector<Sample> samples;
  if (!fs.exists(path)) return samples;
  read_lines(fs, path, [&](std::string_view line, const std::string& where) {
    samples.push_back(parse_sample(line, where));
  });
  return samples;
}

void drop_samples_after(FileSystem& fs, const std::string& path, int64_t step) {
  keep_lines_until(fs, path, step, false, [](std::string_view line, const std::string& where) {
    return parse_sample(line, where).step;
  });
}

void write_run_record(FileSystem& fs, const std::string& folder, const RunRecord& record) {
  fs.create_folders(folder);
  write_file_atomically(fs, folder + "/" + run_files::kRecord, record.json());
  write_file_atomically(fs, folder + "/" + run_files::kConfig, record.config_toml());
}

RunRecord read_run_record(FileSystem& fs, const std::string& folder) {
  const std::string path = folder + "/" + run_files::kRecord;
  RunRecord record = RunRecord::parse(fs.read(path), path);
  const std::string config = folder + "/" + run_files::kConfig;
  if (fs.exists(config)) record.config_toml_ = fs.read(config);
  return record;
}

std::string value_text(const RunRecord::Value& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
          return v;
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

}  // namespace ingot
