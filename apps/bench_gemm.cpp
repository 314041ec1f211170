// `ingot bench gemm`: how fast the matrix products of a model are, and what sizes would change.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "base/file_system.h"
#include "measure/gemm_bench.h"
#include "measure/product_bench.h"
#include "measure/step_bench.h"
#include "train/memory_policy.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

struct GemmArguments {
  std::string of, largest = "1GiB", html, table;
  JsonOption json;
  std::vector<std::string> parts{"model", "advice", "experts", "map", "decode"}, types{"f32", "bf16"};
  PresetStep step;
  GemmBenchOptions bench;
};

/// A preset, a recipe file or a run folder.
Recipe recipe_of(GemmArguments& o, std::vector<std::string> fields) {
  std::error_code broken;
  if (!std::filesystem::exists(o.of, broken)) {
    o.step.preset = o.of;
    return preset_recipe(o.step, fields);
  }
  if (o.step.vocab > 0) fields.push_back(fmt::format("--model.vocab={}", o.step.vocab));
  return load_run(real_file_system(), o.of, fields);
}

/// The rows of a file that is there; Error where they are of another machine.
ProductTable table_in(const std::string& path) {
  std::error_code broken;
  if (!std::filesystem::exists(path, broken)) return empty_product_table();
  try {
    ProductTable table = parse_product_table(real_file_system().read(path), path);
    require_this_machine(table, path);
    return table;
  } catch (const Error& e) {
    throw Error(e.what(), "name another file: --table adds to the rows of one that is there");
  }
}

void measure(GemmArguments& o, const std::vector<std::string>& fields) {
  o.bench.parts.clear();
  for (const GemmPart part : {GemmPart::model, GemmPart::advice, GemmPart::experts, GemmPart::map})
    if (std::find(o.parts.begin(), o.parts.end(), name_of(part)) != o.parts.end())
      o.bench.parts.push_back(part);
  o.bench.decode = std::find(o.parts.begin(), o.parts.end(), "decode") != o.parts.end();
  o.bench.types.clear();
  for (const DType type : {DType::f32, DType::bf16})
    if (std::find(o.types.begin(), o.types.end(), name_of(type)) != o.types.end())
      o.bench.types.push_back(type);
  o.bench.largest = parse_memory(o.largest, "--largest");
  if (!o.table.empty()) {
    ProductTable before = table_in(o.table);
    const ProductTrials trials = try_products(recipe_of(o, fields), o.bench);
    write_file_atomically(real_file_system(), o.table,
                          write_product_table(table_of(trials, std::move(before))));
    o.json.print(to_text(trials), to_json(trials));
    return;
  }
  const GemmBenchReport report = bench_gemm(recipe_of(o, fields), o.bench);
  o.json.print(to_text(report), to_json(report));
  if (!o.html.empty()) write_file_atomically(real_file_system(), o.html, render_gemm_page(report));
}

}  // namespace

void add_bench_gemm(CLI::App& bench, int& code) {
  auto o = std::make_shared<GemmArguments>();
  o->step.batch = 4;
  CLI::App* c = bench.add_subcommand(
      "gemm", "matrix products: those of a model, neighbouring sizes, rows per expert, heat maps, decoding");
  c->footer(
      "Examples:\n"
      "  ingot bench gemm zaya-tiny --vocab=512 --parts=model --trials=2 --model.hidden=100   # any field "
      "can be set\n"
      "The fp32 peak P is measured directly before and after every trial; shares are of it, for bf16 "
      "operands too.");
  const CLI::Validator size = in(between(1, 0x1p30));
  c->add_option("model", o->of, "preset (`ingot model` lists them), recipe file or run folder")->required();
  c->add_option("--batch", o->step.batch, "sequences per forward pass (for a preset)")
      ->check(in(between(1, bounds::kBatch)))
      ->capture_default_str();
  c->add_option("--length", o->step.length, "tokens per sequence (for a preset)")
      ->check(in(between(1, bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--vocab", o->step.vocab,
                "vocabulary size; default: that of the model, or 8192 for presets without one")
      ->check(in(between(1, bounds::kVocabulary)));
  CLI::Option* parts = c->add_option("--parts", o->parts, "what to measure");
  parts->delimiter(',')->capture_default_str()->check(
      CLI::IsMember({"model", "advice", "experts", "map", "decode"}));
  c->add_option("--types", o->types, "dtypes of the operands")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->add_option("--band", o->bench.band, "experts: rows per expert")
      ->delimiter(',')
      ->capture_default_str()
      ->check(size);
  c->add_option("--sizes", o->bench.sizes, "map: rows m and columns n")
      ->delimiter(',')
      ->capture_default_str()
      ->check(size);
  c->add_option("--depths", o->bench.depths, "map: inner sizes k")
      ->delimiter(',')
      ->capture_default_str()
      ->check(size);
  c->add_option("--rows", o->bench.decode_rows, "decode: numbers of rows")
      ->delimiter(',')
      ->capture_default_str()
      ->check(size);
  c->add_option("--largest", o->largest,
                "maximum size of the operands and the result; larger products are left out, and copies of a "
                "weight, which keep it out of the caches, take no more")
      ->capture_default_str();
  c->add_option("--trials", o->bench.trials, "number of trials")
      ->capture_default_str()
      ->check(in(between(1, 1000)));
  c->add_option("--seconds", o->bench.seconds, "minimum seconds of a trial")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  add_json_option(*c, o->json);
  CLI::Option* html =
      c->add_option("--html", o->html, "write heat maps and tables to this file: a self-contained HTML page");
  c->add_option(
       "--table", o->table,
       "instead, find the fastest way to make each product of the model's steps, and write those that "
       "are not the rule's to this file, which INGOT_PRODUCT_TABLE=FILE makes the program follow; other "
       "products of a file that is there keep their rows")
      ->excludes(parts)
      ->excludes(html);
  c->allow_extras();
  c->callback([o, c, &code] {
    measure(*o, c->remaining());
    code = 0;
  });
}

}  // namespace ingot
