// See quantize.h: the ops' descriptions, and their CPU kernels: rows in parallel.
#include "ops/quantize/quantize.h"

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/quantize/call.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor& x = call.in[0];
  INGOT_CHECK(x.shape().rank() == 2 && is_floating(x.dtype()), "x {}", x.meta.str());
  out[0] = {Shape{x.dim(0), quantized_width(x.dim(1))}, DType::u8};
}

void infer_back(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor& q = call.in[0];
  INGOT_CHECK(q.shape().rank() == 2 && q.dtype() == DType::u8, "q {}", q.meta.str());
  const int64_t width = dequantized_width(q.dim(1));
  INGOT_CHECK(quantized_width(width) == q.dim(1), "q {}: rows of no width have as many bytes", q.meta.str());
  out[0] = {Shape{q.dim(0), width}, call.attr<DequantizeAttr>().out};
}

OpCost cost(const OpCall& call) {
  return {0, 0, 0, tensor_bytes(call)};
}

std::string print(const void*) {
  return {};
}
std::string print_back(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const DequantizeAttr*>(attr)->out));
}

constexpr int64_t kElements = 1 << 15;  // per piece of work

void forward(const OpCall& call) {
  const QuantizeRows p = quantize_call(call);
  parallel_kernel(p.rows, row_grain(p.width, kElements), INGOT_ISA_CALL(quantize_rows), p);
}

void forward_back(const OpCall& call) {
  const DequantizeRows p = dequantize_call(call);
  parallel_kernel(p.rows, row_grain(p.width, kElements), INGOT_ISA_CALL(dequantize_rows), p);
}

}  // namespace

QuantizeRows quantize_call(const OpCall& call) {
  const Tensor& x = call.in[0];
  return {x.dim(0), x.dim(1), x.data, x.dtype(), device_address<uint8_t>(call.out[0])};
}

DequantizeRows dequantize_call(const OpCall& call) {
  const Tensor& x = call.out[0];
  return {x.dim(0), x.dim(1), device_address<const uint8_t>(call.in[0]), x.data, x.dtype()};
}

const char* refuse_quantize(const OpCall& call) {
  return refuse_other_than({DType::f32, DType::bf16, DType::u8}, "a type other than f32 and bf16", call);
}

const Op& quantize_op() {
  static const Op op{
      .name = "quantize",
      .inputs = {{"x", InputKind::data}},
      .outputs = {{"q", false}},
      .reads = reads_nothing,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = with_gpu_kernels(
          "quantize", {{"cpu", refuse_quantize, forward, nullptr, nullptr}, quantize_reference()}),
      .has_bits_of_a_format = true,
      .axis_rule = {.passes = kElementwise}};
  return op;
}

const Op& dequantize_op() {
  static const Op op{
      .name = "dequantize",
      .inputs = {{"q", InputKind::data}},
      .outputs = {{"x", false}},
      .reads = reads_nothing,
      .infer = infer_back,
      .cost = cost,
      .print = print_back,
      .kernels = with_gpu_kernels(
          "dequantize", {{"cpu", refuse_quantize, forward_back, nullptr, nullptr}, dequantize_reference()}),
      .has_bits_of_a_format = true,
      .axis_rule = {.passes = kElementwise}};
  return op;
}

std::optional<PackedForm> fp8_form(const TensorMeta& value) {
  const Shape& shape = value.shape;
  if (!is_floating(value.dtype) || value.format != nullptr || shape.rank() < 2 || shape.numel() == 0)
    return std::nullopt;
  const int64_t width = shape[-1];
  if (quantized_width(width) >= width * size_of(value.dtype)) return std::nullopt;
  return PackedForm{.pack = {&quantize_op(), {}},
                    .unpack = {&dequantize_op(), AttrBox(DequantizeAttr{value.dtype})},
                    .value = {shape.numel() / width, width},
                    .packed = {Shape{shape.numel() / width, quantized_width(width)}, DType::u8}};
}

}  // namespace ingot
