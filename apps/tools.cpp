// Small subcommands, each a few lines over a library: checkpoint, report, diff, kernels.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_argument.h"
#include "base/folder_lock.h"
#include "base/progress.h"
#include "device/gemm/product_table.h"
#include "device/simd/isa.h"
#include "exchange/stored_model.h"
#include "ops/registry.h"
#include "report/report.h"
#include "report/run_diff.h"
#include "report/table.h"
#include "train/recipe.h"
#include "train/reshape.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

using Text = std::shared_ptr<std::string>;
using Json = nlohmann::ordered_json;

Text required(CLI::App* c, const char* name, const char* help) {
  auto text = std::make_shared<std::string>();
  c->add_option(name, *text, help)->required();
  return text;
}

std::shared_ptr<JsonOption> json_option(CLI::App* c) {
  auto option = std::make_shared<JsonOption>();
  add_json_option(*c, *option);
  return option;
}

/// The [parallel] section of a recipe.
struct Layout {
  ParallelConfig parallel;
  template <class Visitor>
  void visit(Visitor& v) {
    v("parallel", parallel, "layout of the ranks");
  }
};

void add_reshape(CLI::App& checkpoint, int& code) {
  CLI::App* c = checkpoint.add_subcommand(
      "reshape", "rewrite it for another layout of ranks: --parallel.tensor=2 and so on");
  const Text from = required(c, "from", "checkpoint, or a folder of checkpoints (the newest is taken)");
  const Text to = required(c, "to", "folder of checkpoints to write to");
  c->footer(
      "Examples:\n"
      "  ingot checkpoint reshape runs/first/checkpoints reshaped --ranks 2 --parallel.tensor=2");
  const auto ranks = std::make_shared<int>(1);
  const auto json = json_option(c);
  c->add_option("--ranks", *ranks, "number of ranks of the new layout")->check(in(between(1, 65536)));
  c->allow_extras();
  c->callback([=, &code] {
    const Layout layout = load_config<Layout>("", c->remaining());
    const ReshapeReport r = reshape_checkpoint(real_file_system(), *from, *to, *ranks, layout.parallel);
    const Json j{{"path", r.path},
                 {"tensors", r.tensors},
                 {"pieces", r.pieces},
                 {"bytes", r.bytes},
                 {"ranks", *ranks},
                 {"grid", fmt::format("{}", r.grid)},
                 {"largest_share", r.largest_share}};
    json->print(fmt::format("{}: {} tensors in {} pieces, {}; {} ranks ({}), at most {} per rank\n", r.path,
                            r.tensors, r.pieces, format_bytes(static_cast<double>(r.bytes)), *ranks, r.grid,
                            format_bytes(static_cast<double>(r.largest_share))),
                j.dump(2));
    code = 0;
  });
}

void add_checkpoint(CLI::App& app, int& code) {
  CLI::App* c = app.add_subcommand("checkpoint", "inspect, verify or reshape a checkpoint");
  c->require_subcommand(1);
  CLI::App* verify = c->add_subcommand("verify", "verify every byte against its checksum");
  const Text path = required(verify, "model", kModelHelp);
  const auto verified = json_option(verify);
  verify->callback([=, &code] {
    const CheckpointReader r = open_stored_model(real_file_system(), *path, Verify::bytes).reader;
    const Json j{{"path", r.path()}, {"step", r.step()}, {"complete", true}};
    verified->print(fmt::format("{}: complete and undamaged, step {}\n", r.path(), r.step()), j.dump(2));
    code = 0;
  });
  CLI::App* show = c->add_subcommand("show", "list its tensors");
  const Text which = required(show, "model", kModelHelp);
  const auto json = json_option(show);
  show->callback([=, &code] {
    const CheckpointReader r = open_stored_model(real_file_system(), *which, Verify::structure).reader;
    Table table({words(""), words(""), words("")});
    Json j{{"path", r.path()}, {"step", r.step()}};
    for (const auto& [name, t] : r.tensors()) {
      table.add({"  " + name, name_of(t.kind), t.meta.str()});
      j["tensors"][name] = {{"kind", name_of(t.kind)}, {"shape", t.meta.str()}};
    }
    json->print(fmt::format("{}: step {}\n", r.path(), r.step()) + table.text(), j.dump(2));
    code = 0;
  });
  add_reshape(*c, code);
}

void add_report(CLI::App& app, int& code) {
  CLI::App* c = app.add_subcommand("report", "write a run's report.html, or one page that compares runs");
  const auto folders = std::make_shared<std::vector<std::string>>();
  c->add_option("run", *folders, "run folder; several are drawn over each other")->required();
  const auto out = std::make_shared<std::string>();
  c->add_option("--out", *out, "file to write (default: report.html in the run folder, or comparison.html)");
  c->footer("Examples:\n  ingot report runs/first\n  ingot report runs/first runs/b --out both.html");
  c->callback([=, &code] {
    FileSystem& fs = real_file_system();
    std::vector<ReportData> runs;
    for (const std::string& folder : *folders) {
      runs.push_back(read_report_data(fs, folder));
      runs.back().running = FolderLock::held(folder, "run");
    }
    const bool one = runs.size() == 1;
    const std::string path = !out->empty() ? *out
                             : one         ? folders->front() + "/" + run_files::kReport
                                           : "comparison.html";
    write_file_atomically(fs, path, one ? render_report(runs.front()) : render_comparison(runs));
    std::cout << path << "\n";
    code = 0;
  });
}

Json difference_json(const RunDifference& d) {
  Json j{{"left_steps", d.left_steps}, {"right_steps", d.right_steps}, {"first_loss_difference", nullptr}};
  if (d.first_loss_difference) j["first_loss_difference"] = *d.first_loss_difference;
  j["config"] = j["record"] = Json::array(), j["metrics"] = Json::array();
  for (const auto& [name, list] : {std::pair{"config", &d.config}, {"record", &d.record}})
    for (const ConfigDifference& c : *list)
      j[name].push_back({{"path", c.path}, {"left", c.left}, {"right", c.right}});
  j["left_starts"] = d.left_starts, j["right_starts"] = d.right_starts;
  for (const MetricDifference& m : d.metrics)
    j["metrics"].push_back({{"name", m.name}, {"step", m.step}, {"left", m.left}, {"right", m.right}});
  return j;
}

void add_diff(CLI::App& app, int& code) {
  CLI::App* c = app.add_subcommand("diff", "compare two runs: recipe, build, losses");
  c->footer("Examples:\n  ingot diff runs/first runs/b");
  const Text left = required(c, "left", "run folder"), right = required(c, "right", "run folder");
  const auto json = json_option(c);
  c->callback([=, &code] {
    const RunDifference d = compare_runs(real_file_system(), *left, *right, renamed_recipe_keys());
    json->print(to_text(d, *left, *right), difference_json(d).dump(2));
    code = 0;
  });
}

/// How products are made that INGOT_PRODUCT_TABLE has; nothing without one.
std::string list_product_table(Json& j) {
  const NamedProductTable* const named = named_product_table();
  if (named == nullptr) return "";
  j["product_table"] = {{"path", named->path}, {"rows", Json::array()}};
  Table table({words("product"), words("made with")});
  for (const ProductTableRow& row : named->table.rows) {
    table.add({text_of(row.product), text_of(row.choice)});
    j["product_table"]["rows"].push_back(
        {{"product", text_of(row.product)}, {"choice", text_of(row.choice)}});
  }
  return fmt::format("\nproduct table '{}' of ingot {} (INGOT_PRODUCT_TABLE): {}\n", named->path,
                     named->table.program,
                     count_of(static_cast<int64_t>(named->table.rows.size()), "product")) +
         table.text();
}

void add_kernels(CLI::App& app, int& code) {
  CLI::App* c = app.add_subcommand("kernels", "list the CPU's kernels of each op in order of preference");
  c->footer(
      "A step runs the first kernel of an op that takes its shapes and dtypes. `cpu` is the fast one, "
      "compiled for each\n"
      "instruction set; `reference` is its definition in plain loops, which runs only with --kernels=any or "
      "reference.");
  const auto json = json_option(c);
  c->callback([=, &code] {
    const std::string isa = isa_name(active_isa()),
                      fingerprint = kernel_set_fingerprint(DType::f32, DeviceKind::cpu);
    Table table({words("op"), words("kernels, the first that fits runs")});
    Json j{{"instruction_set", isa}, {"fingerprint", fingerprint}};
    for (const Op* op : all_ops()) {
      std::string names;
      for (const Kernel& k : op->kernels) {
        if (k.device != DeviceKind::cpu) continue;
        names += (names.empty() ? "" : ", ") + std::string(k.name);
        j["ops"][op->name].push_back(k.name);
      }
      table.add({op->name, names});
    }
    const std::string products = list_product_table(j);
    json->print(
        fmt::format(
            "instruction set {} (INGOT_ISA=generic|avx2|avx512 limits it); equal fingerprints compute "
            "equal bits: {}\n",
            isa, fingerprint) +
            table.text() + products,
        j.dump(2));
    code = 0;
  });
}

}  // namespace

void add_tool_commands(CLI::App& app, int& code) {
  add_checkpoint(app, code);
  add_report(app, code);
  add_diff(app, code);
  add_kernels(app, code);
}

}  // namespace ingot
