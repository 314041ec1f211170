#!/usr/bin/env python3
"""A GGUF file of GPT-2's shape (124M, tied head) with random weights for llama.cpp's llama-bench. Needs the packages gguf and numpy.

usage: gpt2_gguf.py OUT.gguf f32|bf16|q8_0"""

import sys

import gguf
import numpy

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 12, 12, 768, 50257, 1024


def main():
    path, kind = sys.argv[1], gguf.GGMLQuantizationType[sys.argv[2].upper()]
    random = numpy.random.default_rng(1)
    out = gguf.GGUFWriter(path, "gpt2")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_feed_forward_length(4 * WIDTH)
    out.add_block_count(LAYERS)
    out.add_head_count(HEADS)
    out.add_layer_norm_eps(1e-5)
    out.add_tokenizer_model("no_vocab")
    out.add_vocab_size(VOCABULARY)

    def matrix(name, *shape):
        values = 0.02 * random.standard_normal(shape, numpy.float32)
        out.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def norm(name):
        out.add_tensor(name + ".weight", numpy.ones(WIDTH, numpy.float32))
        out.add_tensor(name + ".bias", numpy.zeros(WIDTH, numpy.float32))

    matrix("token_embd.weight", VOCABULARY, WIDTH)
    out.add_tensor("position_embd.weight", 0.02 * random.standard_normal((CONTEXT, WIDTH), numpy.float32))
    norm("output_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm")
        norm(block + "ffn_norm")
        for name, rows, columns in [("attn_qkv", 3 * WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH), ("ffn_up", 4 * WIDTH, WIDTH), ("ffn_down", WIDTH, 4 * WIDTH)]:
            matrix(f"{block}{name}.weight", rows, columns)
            out.add_tensor(f"{block}{name}.bias", numpy.zeros(rows, numpy.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
