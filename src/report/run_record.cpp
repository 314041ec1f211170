// See run_record.h.
#include "report/run_record.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "base/invocation.h"
#include "base/log.h"
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

RunRecord::Value read_value(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) fail("{}: expected a string or a number, found {}", where, value.type_name());
  return value.get<double>();
}

void require_known_format(const Json& json, const std::string& where) {
  const auto format = json.find("format");
  if (format == json.end()) return;
  if (!format->is_number_integer())
    fail("{}: \"format\": expected a number, found {}", where, format->type_name());
  if (*format <= kRecordFormat) return;
  std::string writer = "a newer version of ingot";
  if (const auto build = json.find("build"); build != json.end() && build->is_object())
    writer = "ingot " + build->value("ingot", std::string("of a newer version"));
  throw NewerRun(fmt::format("'{}' has format {}, this program reads up to {}: {} wrote it", where,
                             format->dump(), kRecordFormat, writer),
                 "use that version for this run folder");
}

/// Null where `name` is absent.
std::optional<double> number_or_none(const Json& entry, const char* name) {
  const auto value = entry.find(name);
  return value == entry.end() ? std::nullopt : std::optional(value->get<double>());
}

Prediction read_prediction(const Json& entry, const std::string& where) {
  Prediction p;
  p.what = enum_from<Predicted>(entry.at("what").get<std::string>(), where + ": prediction of");
  p.of = entry.value("of", std::string());
  p.predicted = number_or_none(entry, "predicted"), p.measured = number_or_none(entry, "measured");
  p.largest = entry.value("largest", std::string()), p.missing = entry.value("missing", std::string());
  return p;
}

Json prediction_json(const Prediction& p) {
  Json json{{"what", name_of(p.what)}};
  if (!p.of.empty()) json["of"] = p.of;
  if (p.predicted) json["predicted"] = *p.predicted;
  if (p.measured) json["measured"] = *p.measured;
  if (!p.largest.empty()) json["largest"] = p.largest;
  if (!p.missing.empty()) json["missing"] = p.missing;
  return json;
}

std::vector<RunRecord::Start> read_starts(const Json& list, const std::string& where) {
  std::vector<RunRecord::Start> starts;
  if (!list.is_array()) fail("{}: \"starts\": expected a list, found {}", where, list.type_name());
  for (const Json& entry : list) {
    const std::string here = fmt::format("{}: start {}", where, starts.size() + 1);
    if (!entry.is_object()) fail("{}: expected an object, found {}", here, entry.type_name());
    RunRecord::Start& start = starts.emplace_back();
    try {
      for (const auto& [name, value] : entry.items()) {
        if (name == "environment")
          for (const auto& [variable, text] : value.items())
            start.environment.emplace_back(variable, text.get<std::string>());
        else if (name == "changes")
          for (const Json& c : value) start.changes.push_back({c.at("key"), c.at("before"), c.at("now")});
        else if (name == "predictions")
          for (const Json& p : value) start.predictions.push_back(read_prediction(p, here));
        else
          start.facts.push_back({name, read_value(value, here + ": " + name)});
      }
    } catch (const Json::exception& error) {
      fail("{}: {}", here, error.what());
    }
  }
  return starts;
}

Json start_json(const RunRecord::Start& start) {
  Json json = Json::object();
  for (const auto& fact : start.facts)
    std::visit([&](const auto& value) { json[fact.name] = value; }, fact.value);
  json["environment"] = Json::object();
  for (const auto& [name, text] : start.environment) json["environment"][name] = text;
  json["changes"] = Json::array();
  for (const ConfigDifference& c : start.changes)
    json["changes"].push_back({{"key", c.path}, {"before", c.left}, {"now", c.right}});
  for (const Prediction& p : start.predictions) json["predictions"].push_back(prediction_json(p));
  return json;
}

/// The start of a record that has no list of them.
RunRecord::Start start_of_groups(const RunRecord& record) {
  RunRecord::Start start;
  const auto take = [&](const char* name, const char* group, const char* entry) {
    if (const auto* value = record.find(group, entry)) start.set(name, *value);
  };
  take("time", "run", "started");
  take("program", "build", "ingot");
  take("commit", "build", "commit");
  take("kernels", "kernels", "fingerprint");
  return start;
}

constexpr const char* kVariablePrefixes[] = {"OMP_", "INGOT_"};
constexpr const char* kVariables[] = {"CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH",
                                      "LD_PRELOAD",           "MALLOC_ARENA_MAX",
                                      "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                      "SLURM_CLUSTER_NAME",   "SLURM_CPUS_PER_TASK",
                                      "SLURM_JOB_ID",         "SLURM_JOB_NODELIST",
                                      "SLURM_JOB_NUM_NODES",  "SLURM_NTASKS",
                                      "SLURM_RESTART_COUNT",  "TMPDIR"};

std::vector<std::pair<std::string, std::string>> named_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const std::string_view name = entry.substr(0, entry.find('='));
    const bool wanted = std::any_of(std::begin(kVariablePrefixes), std::end(kVariablePrefixes),
                                    [&](const char* prefix) { return name.starts_with(prefix); }) ||
                        std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables);
    if (wanted && name.size() < entry.size()) found.emplace_back(name, entry.substr(name.size() + 1));
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The command line of this process, quoted where a shell would need it.
std::string command_line() {
  std::string text;
  const std::string raw = real_file_system().read("/proc/self/cmdline");
  for (size_t begin = 0, end; (end = raw.find('\0', begin)) != raw.npos; begin = end + 1) {
    text += (text.empty() ? "" : " ") + shell_word(raw.substr(begin, end - begin));
  }
  return text;
}

}  // namespace

const RunRecord::Value* RunRecord::Start::find(const std::string& name) const {
  for (const Entry& fact : facts)
    if (fact.name == name) return &fact.value;
  return nullptr;
}

std::string RunRecord::Start::text(const std::string& name) const {
  const Value* value = find(name);
  return value != nullptr ? value_text(*value) : "unknown";
}

void RunRecord::Start::set(const std::string& name, Value value) {
  for (Entry& fact : facts)
    if (fact.name == name) {
      fact.value = std::move(value);
      return;
    }
  facts.push_back({name, std::move(value)});
}

std::string RunRecord::working_folder() const {
  const Value* value = starts_.empty() ? nullptr : starts_.back().find("working folder");
  return value != nullptr ? value_text(*value) : "";
}

RunRecord::Start start_of_this_program(double wall) {
  RunRecord::Start start;
  start.set("time", utc_time(wall));
  start.set("program", build_info().version);
  start.set("commit", build_info().commit);
  start.set("command", command_line());
  start.set("working folder", std::filesystem::current_path().string());
  start.environment = named_environment();
  return start;
}

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
  require_known_format(json, where);
  RunRecord record;
  for (const auto& [group, entries] : json.items()) {
    if (group == "config") {
      record.config_json_ = dump(entries, 2);
      continue;
    }
    if (group == "format") continue;
    if (group == "starts") {
      record.starts_ = read_starts(entries, where);
      continue;
    }
    if (!entries.is_object())
      fail("{}: \"{}\": expected an object, found {}", where, group, entries.type_name());
    for (const auto& [name, value] : entries.items())
      record.set(group, name, read_value(value, fmt::format("{}: \"{}\": \"{}\"", where, group, name)));
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
  json["format"] = kRecordFormat;
  for (const Group& group : groups_)
    for (const Entry& entry : group.entries)
      std::visit([&](const auto& value) { json[group.name][entry.name] = value; }, entry.value);
  json["starts"] = Json::array();
  for (const Start& start : starts_) json["starts"].push_back(start_json(start));
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

void record_start(FileSystem& fs, const std::string& folder, RunRecord record, RunRecord::Start start,
                  std::span<const RenamedKey> renamed) {
  const std::string path = folder + "/" + run_files::kRecord, config = folder + "/" + run_files::kConfig;
  if (fs.exists(path)) {
    try {
      const RunRecord before = RunRecord::parse(fs.read(path), path);
      record.starts_ = before.starts();
      if (record.starts_.empty()) record.starts_.push_back(start_of_groups(before));
      if (const auto* started = before.find("run", "started")) record.set("run", "started", *started);
    } catch (const NewerRun&) {
      throw;
    } catch (const Error& e) {
      log::warn("{}; it is kept as '{}.damaged'", e.what(), path);
      fs.rename(path, path + ".damaged");
    }
  }
  if (fs.exists(config)) {
    if (record.starts_.empty()) record.starts_.emplace_back().set("time", "unknown");
    const std::string text = fs.read(config);
    bool differs = true;
    try {
      ConfigNode old = parse_toml(text, config);
      move_renamed_keys(old, renamed);
      start.changes = diff_config(old, parse_toml(record.config_toml(), config));
      differs = !start.changes.empty();
    } catch (const Error& e) {
      log::warn("what changed in the recipe is unknown: {}", e.what());
    }
    if (differs) {
      const std::string kept = fmt::format("config.{}.toml", record.starts_.size());
      write_file_atomically(fs, folder + "/" + kept, text);
      record.starts_.back().set("recipe", kept);
    }
  }
  record.starts_.push_back(std::move(start));
  write_run_record(fs, folder, record);
}

void set_predictions(FileSystem& fs, const std::string& folder, std::vector<Prediction> predictions) {
  const std::string path = folder + "/" + run_files::kRecord;
  RunRecord record = RunRecord::parse(fs.read(path), path);
  if (record.starts_.empty()) return;
  record.starts_.back().predictions = std::move(predictions);
  write_file_atomically(fs, path, record.json());
}

std::vector<std::string> start_changes(const RunRecord& record) {
  std::vector<std::string> changes(record.starts().size());
  for (size_t i = 1; i < changes.size(); ++i) {
    const RunRecord::Start &start = record.starts()[i], &before = record.starts()[i - 1];
    const auto add = [&](const std::string& name, const std::string& then, const std::string& now) {
      changes[i] += fmt::format("{}{} {} -> {}", changes[i].empty() ? "" : ", ", name, then, now);
    };
    for (const ConfigDifference& c : start.changes) add(c.path, c.left, c.right);
    for (const char* name :
         {"program", "commit", "kernels", "instruction set", "threads", "ranks", "mpi", "layout"})
      if (before.find(name) != nullptr && before.text(name) != start.text(name))
        add(name, before.text(name), start.text(name));
  }
  return changes;
}

std::vector<std::string> describe_starts(const RunRecord& record) {
  const std::vector<std::string> changes = start_changes(record);
  std::vector<std::string> lines;
  for (size_t i = 1; i < changes.size(); ++i) {
    const RunRecord::Start& start = record.starts()[i];
    lines.push_back(fmt::format("start {} at step {}, {}: {}", i + 1, start.text("first step"),
                                start.text("time"), changes[i].empty() ? "nothing changed" : changes[i]));
  }
  return lines;
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
