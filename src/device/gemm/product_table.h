// The file that says how a machine makes some matrix products fastest, among ways with equal bits
// (product_choices.h): TOML, written by `ingot bench gemm MODEL --table FILE`. The program follows the one
// that INGOT_PRODUCT_TABLE names, from its start on. It holds for the machine and the instruction set that it
// was measured with; others refuse it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "device/gemm/product_choices.h"

namespace ingot {

struct ProductTableRow {
  ProductKey product;
  ProductChoice choice;
  template <class Visitor>
  void visit(Visitor& v) {
    constexpr Range kSize = between(1, 0x1p40);
    v("m", product.m, "rows of C", kSize);
    v("n", product.n, "columns of C", kSize);
    v("k", product.k, "products of an element's sum", kSize);
    v("form", product.form, "how A and B are stored");
    v("a", product.a, "elements of A");
    v("b", product.b, "elements of B");
    v("c", product.c, "elements of C");
    v("accumulate", product.accumulate, "sums start from C");
    v("threads", product.threads, "of the product", between(1, 1024));
    v("transposed", choice.transposed, "C transposed is computed");
    v("in_place", choice.in_place, "the left operand is not packed");
    v("own_blocks", choice.own_blocks, "threads share no packed rows");
    v("kc", choice.kc, "most k-steps of a packed panel", between(16, 4096));
  }
  /// Sizes that are missing, types that no product has, nothing chosen.
  void validate(ConfigErrors& errors) const;
};

/// What must be equal where a table is used.
struct ProductMachine {
  std::string processor, instruction_set;
  std::string caches;  ///< "32 KiB in 8 ways, 1024 KiB, 32768 KiB"
  template <class Visitor>
  void visit(Visitor& v) {
    v("processor", processor, "as the system names it");
    v("instruction_set", instruction_set, "as `ingot kernels` names it");
    v("caches", caches, "levels 1, 2 and 3");
  }
  bool operator==(const ProductMachine&) const = default;
};

inline constexpr int64_t kProductTableFormat = 1;

struct ProductTable {
  int64_t format = 0;
  std::string program;
  ProductMachine machine;
  std::vector<ProductTableRow> rows;
  template <class Visitor>
  void visit(Visitor& v) {
    v("format", format, "of this file", between(0, 1e6));
    v("program", program, "version of the program that wrote it");
    v("machine", machine, "where it was measured");
    v("rows", rows, "products for which the rule is not the fastest way");
  }
  /// Another format; two rows of one product.
  void validate(ConfigErrors& errors) const;
};
/// Adds all rows.
void add_to(ProductChoices& choices, const ProductTable& table);

/// A table without rows of this program, machine and active instruction set.
ProductTable empty_product_table();
/// The table that a text is, of any machine. Errors name `path`, line and key: no table, unknown keys, values
/// out of range, another format.
ProductTable parse_product_table(const std::string& text, const std::string& path);
/// Error where the table was measured on another machine or with another instruction set than these.
void require_this_machine(const ProductTable& table, const std::string& path);
std::string write_product_table(const ProductTable& table);

/// "1024 x 768 x 3072 NT, bf16 by rounded to bf16, 2 threads".
std::string text_of(const ProductKey& product);
/// "C transposed, packed, at most 512 k-steps".
std::string text_of(const ProductChoice& choice);

struct NamedProductTable {
  std::string path;
  ProductTable table;
};
/// Reads the table that INGOT_PRODUCT_TABLE names, if it names one, and installs its choices. Errors as of
/// the two above, and where it cannot be read. Once, before products run.
void install_named_product_table();
/// What was installed; nullptr: nothing.
const NamedProductTable* named_product_table();

}  // namespace ingot
