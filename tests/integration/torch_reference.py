"""The trainer's arithmetic done again by PyTorch, transformers and PEFT. Runs in an environment of its own (.venv-torch):

    torch_reference.py MODEL.gguf GROUP OUT nll|policy

GROUP and OUT are what bench/train_step.c reads and writes. Loads OUT/adapter with PEFT onto the Hugging Face model made from the GGUF,
and prints how far log-probabilities and gradients are from those in OUT, as one JSON object.
"""
import json
import pathlib
import sys

import gguf
import numpy
import safetensors.torch
import torch
from peft import PeftModel
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm"}


def hf_name(name):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in fixed:
        return fixed[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def in_hf_order(rows, heads):
    """GGUF has the two halves of a head's rows interleaved."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def load_model(path, dtype=torch.float32):
    reader = gguf.GGUFReader(path)

    def value(key):
        field = reader.fields[f"llama.{key}"]
        return field.parts[field.data[0]][0].item()

    heads, kv_heads = value("attention.head_count"), value("attention.head_count_kv")
    shapes = {t.name: t.shape for t in reader.tensors}
    config = LlamaConfig(
        hidden_size=value("embedding_length"), num_hidden_layers=value("block_count"), num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=value("feed_forward_length"), vocab_size=int(shapes["token_embd.weight"][1]),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"), rope_theta=value("rope.freq_base"),
        max_position_embeddings=value("context_length"), tie_word_embeddings="output.weight" not in shapes)
    model = LlamaForCausalLM(config)
    weights = {}
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in tensor.shape[::-1]])
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            data = in_hf_order(data, heads if ".attn_q." in tensor.name else kv_heads)
        weights[hf_name(tensor.name)] = torch.from_numpy(numpy.array(data, dtype=numpy.float32))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    return model.to(dtype)


def read_group(path):
    lines = [line.split() for line in open(path)]
    prompt, answers = [int(i) for i in lines[0]], []
    for ids, weights, old in zip(lines[1::3], lines[2::3], lines[3::3]):
        answers.append(([int(i) for i in ids], [float(w) for w in weights], None if old == ["-"] else [float(p) for p in old]))
    return prompt, answers


def log_probs(model, prompt, ids):
    logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1].float()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]


def loss_of(kind, logp, weights, old):
    weights = torch.tensor(weights)
    if kind == "nll":
        return -(weights * logp).sum()
    ratio = torch.exp(logp - torch.tensor(old))
    return torch.maximum(-weights * ratio, -weights * torch.clamp(ratio, 0.8, 1.2)).sum()


def main():
    path, group, out, kind = sys.argv[1:]
    out = pathlib.Path(out)
    model = PeftModel.from_pretrained(load_model(path), out / "adapter", is_trainable=True)
    prompt, answers = read_group(group)
    ours = [[float(p) for p in line.split()] for line in open(out / "logprobs")]
    worst_logp = 0.0
    for (ids, weights, old), mine in zip(answers, ours, strict=True):
        logp = log_probs(model, prompt, ids)
        worst_logp = max(worst_logp, (logp.detach() - torch.tensor(mine)).abs().max().item())
        loss_of(kind, logp, weights, old).backward()
    gradients = safetensors.torch.load_file(out / "gradient/adapter_model.safetensors")
    worst_block, blocks = 0.0, 0
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        mine = gradients.pop(name.replace(".default.", "."))
        norm = parameter.grad.norm().item()
        assert norm > 0, name
        worst_block = max(worst_block, (mine - parameter.grad).norm().item() / norm)
        blocks += 1
    assert not gradients, list(gradients)
    print(json.dumps({"worst_logp": worst_logp, "worst_block": worst_block, "blocks": blocks}))


if __name__ == "__main__":
    main()
