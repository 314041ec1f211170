// See memory_policy.h.
#include "train/memory_policy.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/config.h"
#include "base/error.h"
#include "ops/quantize/quantize.h"
#include "ops/registry.h"

namespace ingot {
namespace {

constexpr std::string_view kEven = "@even";

const std::vector<std::string>& module_names() {
  static const std::vector<std::string> names = {"embed",    "attention", "mlp",     "route", "shared",
                                                 "dispatch", "experts",   "combine", "head",  "stream"};
  return names;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const Op* op : all_ops()) {
    names.emplace_back(op->name);
    for (const OutputSlot& o : op->outputs) names.push_back(fmt::format("{}.{}", op->name, o.name));
  }
  return names;
}

void require_known(const std::string& name, const std::vector<std::string>& known, const char* field,
                   const char* what) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string nearest = nearest_name(name, known);
  throw Error(fmt::format("memory.{} names '{}', which is no {}", field, name, what),
              nearest.empty() ? "names are op, op.output, module/, module/op or module/op.output, with @even "
                                "after them for every second layer"
                              : fmt::format("did you mean '{}'?", nearest));
}

/// A statistic in FP8 would be useless to the backward that it is for.
void require_gradient(const std::string& op, const std::string& output) {
  for (const Op* known : all_ops())
    for (const OutputSlot& o : known->outputs)
      if (op == known->name && output == o.name && !o.differentiable)
        throw Error(fmt::format("memory.fp8 names '{}.{}', which has no gradient: backward needs it as it is",
                                op, output),
                    "FP8 is for what products read, e.g. activation, add_norm.h");
}

}  // namespace

NamedPolicy::NamedPolicy(const std::vector<std::string>& recompute, const std::vector<std::string>& offload,
                         const std::vector<std::string>& fp8)
    : recompute_(parse(recompute, "recompute")),
      offload_(parse(offload, "offload")),
      fp8_(parse(fp8, "fp8")) {
  for (const Name& n : fp8_) require_gradient(n.op, n.output);
}

std::vector<NamedPolicy::Name> NamedPolicy::parse(const std::vector<std::string>& names, const char* field) {
  const std::vector<std::string> ops = op_names();
  std::vector<Name> parsed;
  for (std::string text : names) {
    Name n;
    n.even = text.ends_with(kEven);
    if (n.even) text.resize(text.size() - kEven.size());
    const size_t slash = text.find('/');
    if (slash != std::string::npos) {
      n.module = text.substr(0, slash);
      require_known(n.module, module_names(), field, "module");
    }
    const std::string rest = slash == std::string::npos ? text : text.substr(slash + 1);
    if (slash == std::string::npos || !rest.empty())
      require_known(rest, ops, field, "op and no output of an op");
    const size_t dot = rest.find('.');
    n.op = rest.substr(0, dot);
    if (dot != std::string::npos) n.output = rest.substr(dot + 1);
    parsed.push_back(std::move(n));
  }
  return parsed;
}

bool NamedPolicy::matches(const std::vector<Name>& names, const Op& op, int output, const Segment& segment) {
  const std::string slot = op.outputs[static_cast<size_t>(output)].name;
  return std::any_of(names.begin(), names.end(), [&](const Name& n) {
    if (!n.module.empty() && n.module != segment.name) return false;
    if (n.even && (segment.layer < 0 || segment.layer % 2 != 0)) return false;
    if (n.op.empty()) return slot != "stream";
    return n.op == op.name && (n.output.empty() || n.output == slot);
  });
}

SlotFate NamedPolicy::fate(const Op& op, int output, const Segment& segment) const {
  if (matches(recompute_, op, output, segment)) return SlotFate::recompute;
  if (op.outputs[static_cast<size_t>(output)].differentiable && matches(fp8_, op, output, segment))
    return SlotFate::fp8;
  return matches(offload_, op, output, segment) ? SlotFate::offload : SlotFate::keep;
}

std::optional<PackedForm> NamedPolicy::fp8_form(const TensorMeta& value) const {
  return ingot::fp8_form(value);
}

const std::vector<PolicyLevel>& policy_levels() {
  static const std::vector<PolicyLevel> levels = {
      {{"activation", "add_norm.h"}, {}, "element-wise results are recomputed"},
      {{"attention/linear@even", "attention/qk_prepare@even", "attention/mla_pack@even"},
       {},
       "what attention reads is projected twice in every second layer"},
      {{"attention/linear", "attention/qk_prepare", "attention/mla_pack"},
       {},
       "what attention reads is projected twice"},
      {{"mlp/", "shared/", "dispatch/", "experts/", "combine/"},
       {},
       "the feed-forward modules run forward twice"},
      {{"attention/", "route/"}, {}, "every block runs forward twice"},
      {{}, {"add_norm.stream", "stream/", "embedding"}, "the residual stream goes to disk"},
  };
  return levels;
}

int64_t recompute_levels() {
  return std::count_if(policy_levels().begin(), policy_levels().end(),
                       [](const PolicyLevel& l) { return l.offload.empty(); });
}

void add_names(std::vector<std::string>& names, const std::vector<std::string>& more) {
  for (const std::string& name : more) {
    std::erase(names, name + std::string(kEven));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

bool names_even_layers(const MemoryConfig& memory) {
  bool found = false;
  for (const auto* names : {&memory.recompute, &memory.fp8, &memory.offload})
    for (const std::string& name : *names) found |= name.ends_with(kEven);
  return found;
}

int64_t parse_memory(const std::string& text, const std::string& field) {
  if (text.empty()) return 0;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  static const std::pair<const char*, double> units[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, factor] : units)
    if (end != text.c_str() && unit == name && std::isfinite(number) && number > 0 &&
        number * factor < 0x1p62)
      return static_cast<int64_t>(number * factor);
  throw Error(fmt::format("{} is '{}', expected an amount of memory", field, text),
              "write it as 16GiB, 512MiB or 2GB");
}

}  // namespace ingot
