// See product_table.h.
#include "device/gemm/product_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <tuple>
#include <utility>

#include "base/build_info.h"
#include "base/error.h"
#include "base/file_system.h"
#include "device/simd/isa.h"

namespace ingot {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;
constexpr const char* kHint =
    "unset INGOT_PRODUCT_TABLE; then `ingot bench gemm MODEL --table FILE` measures a table here";

/// 0: not known.
int64_t known(int name) {
  return std::max<int64_t>(0, ::sysconf(name));
}

std::string caches_here() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  return fmt::format("{} KiB in {} ways, {} KiB, {} KiB", known(_SC_LEVEL1_DCACHE_SIZE) / 1024,
                     known(_SC_LEVEL1_DCACHE_ASSOC), known(_SC_LEVEL2_CACHE_SIZE) / 1024,
                     known(_SC_LEVEL3_CACHE_SIZE) / 1024);
#else
  return "not known";
#endif
}

/// Its choices live as long as products may run.
struct Installed {
  NamedProductTable named;
  ProductChoices choices;
};
std::unique_ptr<Installed>& installed_table() {
  static std::unique_ptr<Installed> table;
  return table;
}

}  // namespace

void ProductTableRow::validate(ConfigErrors& errors) const {
  const ProductKey& p = product;
  if (p.m == 0 || p.n == 0 || p.k == 0) errors.add("", "a product has m, n and k");
  if (p.threads == 0) errors.add("", "a product has threads");
  for (const auto& [name, type] : {std::pair{"a", p.a}, {"c", p.c}})
    if (type == ElementType::rounded) errors.add(name, "is rounded, which only b can be");
  if (p.accumulate && p.c != ElementType::f32) errors.add("accumulate", "is true, but c is not f32");
  if (choice == ProductChoice{})
    errors.add("", "chooses nothing: one of transposed, in_place, own_blocks, kc");
}

void ProductTable::validate(ConfigErrors& errors) const {
  if (format != kProductTableFormat)
    errors.add("format", "is {}, expected {}: another version of the program wrote the table", format,
               kProductTableFormat);
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t before = 0; before < i; ++before)
      if (rows[before].product == rows[i].product)
        errors.add(fmt::format("rows.{}", i), "is of the product of rows.{}", before);
}

void add_to(ProductChoices& choices, const ProductTable& table) {
  for (const ProductTableRow& row : table.rows) choices.add(row.product, row.choice);
}

ProductTable empty_product_table() {
  return {kProductTableFormat,
          build_info().version,
          {machine_info().cpu, isa_name(active_isa()), caches_here()},
          {}};
}

ProductTable parse_product_table(const std::string& text, const std::string& path) {
  try {
    return read_config<ProductTable>(parse_toml(text, path));
  } catch (const Error& e) {
    throw Error(fmt::format("'{}' is no table of products: {}", path, e.what()), kHint);
  }
}

void require_this_machine(const ProductTable& table, const std::string& path) {
  const ProductMachine here = empty_product_table().machine, &there = table.machine;
  for (const auto& [what, found, expected] :
       {std::tuple{"processor", there.processor, here.processor},
        {"instruction set", there.instruction_set, here.instruction_set},
        {"caches", there.caches, here.caches}})
    if (found != expected)
      throw Error(fmt::format("'{}' is a table of products of another machine: its {} is '{}', here '{}'",
                              path, what, found, expected),
                  kHint);
}

std::string write_product_table(const ProductTable& table) {
  ConfigNode tree = to_node(table);
  ConfigNode& rows = *tree.find("rows");
  rows.doc.clear();
  for (ConfigNode& row : rows.items) {
    std::erase_if(row.items, [](const ConfigNode& key) { return key.string == "none"; });
    for (ConfigNode& key : row.items) key.doc.clear();
  }
  return to_toml(tree);
}

std::string text_of(const ProductKey& p) {
  return fmt::format("{} x {} x {} {}, {} by {} to {}{}, {} thread{}", p.m, p.n, p.k, name_of(p.form),
                     name_of(p.a), name_of(p.b), name_of(p.c), p.accumulate ? ", accumulated" : "", p.threads,
                     p.threads == 1 ? "" : "s");
}

std::string text_of(const ProductChoice& c) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (c.transposed) add(*c.transposed ? "C transposed" : "C as it is");
  if (c.in_place) add(*c.in_place ? "in place" : "packed");
  if (c.own_blocks) add(*c.own_blocks ? "blocks of each thread" : "blocks of all threads");
  if (c.kc) add(fmt::format("at most {} k-steps", *c.kc));
  return text;
}

void install_named_product_table() {
  const char* const path = std::getenv("INGOT_PRODUCT_TABLE");
  if (path == nullptr || *path == '\0') return;
  std::string text;
  try {
    text = read_at_most(real_file_system(), path, kMostBytes);
  } catch (const Error& e) {
    throw Error(fmt::format("INGOT_PRODUCT_TABLE: {}", e.what()), kHint);
  }
  auto table = std::make_unique<Installed>();
  table->named = {path, parse_product_table(text, path)};
  require_this_machine(table->named.table, path);
  add_to(table->choices, table->named.table);
  install_product_choices(&table->choices);
  installed_table() = std::move(table);
}

const NamedProductTable* named_product_table() {
  return installed_table() == nullptr ? nullptr : &installed_table()->named;
}

}  // namespace ingot
