"""MiniLM's shape of the BERT encoder with random weights: the weights, a plain float64 reference, and PyTorch's module.

The weights go by Hugging Face's names for BertModel. Needs PyTorch alone.
"""

import ctypes
import json
import math
import struct

import torch
import torch.nn.functional as F

SHAPE = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
EPS = 1e-12
TOKEN_TYPES = 2


def random_weights(seed):
    """f32 on the host, the same for the same seed. Large enough that every term of the encoder shows in its answers."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    weights = {}

    def normal(name, *shape, scale=0.05, mean=0.0):
        weights[name] = torch.randn(*shape, generator=generator) * scale + mean

    def linear(name, outputs, inputs):
        normal(f"{name}.weight", outputs, inputs)
        normal(f"{name}.bias", outputs)

    def layer_norm(name):
        normal(f"{name}.weight", hidden, scale=0.1, mean=1.0)
        normal(f"{name}.bias", hidden)

    normal("embeddings.word_embeddings.weight", SHAPE["vocab_size"], hidden)
    normal("embeddings.position_embeddings.weight", SHAPE["max_position_embeddings"], hidden)
    normal("embeddings.token_type_embeddings.weight", TOKEN_TYPES, hidden)
    layer_norm("embeddings.LayerNorm")
    for number in range(SHAPE["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", hidden, hidden)
        linear(f"{layer}.attention.output.dense", hidden, hidden)
        layer_norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", inner, hidden)
        linear(f"{layer}.output.dense", hidden, inner)
        layer_norm(f"{layer}.output.LayerNorm")
    return weights


def reference(weights, ids, mask):
    """Last hidden state and embeddings, step by step as the architecture is written down, in the weights' own type.

    Masked rows of the hidden state are zero. `ids` and `mask` are [batch, sequence].
    """
    batch, sequence = ids.shape
    heads = SHAPE["num_attention_heads"]
    width = SHAPE["hidden_size"] // heads

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
        return centred * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def split(x):
        return x.view(batch, sequence, heads, width).transpose(1, 2)

    x = weights["embeddings.word_embeddings.weight"][ids.long()]
    x = x + weights["embeddings.position_embeddings.weight"][:sequence]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, "embeddings.LayerNorm")
    unseen = (mask == 0)[:, None, None, :]
    for number in range(SHAPE["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        query, key, value = (split(linear(x, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = (query @ key.transpose(-1, -2) / math.sqrt(width)).masked_fill(unseen, -math.inf)
        context = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, sequence, -1)
        x = layer_norm(linear(context, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        x = layer_norm(linear(inner, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    seen = (mask != 0)[:, :, None].to(x.dtype)
    x = x * seen
    mean = x.sum(1) / seen.sum(1)
    return x, mean / mean.norm(dim=-1, keepdim=True)


class Layer(torch.nn.Module):
    """One layer with the query, key and value in one product."""

    def __init__(self, weights, prefix):
        super().__init__()
        hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        self.attended = torch.nn.Linear(hidden, hidden)
        self.attended_norm = torch.nn.LayerNorm(hidden, EPS)
        self.up = torch.nn.Linear(hidden, inner)
        self.down = torch.nn.Linear(inner, hidden)
        self.down_norm = torch.nn.LayerNorm(hidden, EPS)
        parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
        for kind in ("weight", "bias"):
            fused = torch.cat([weights[f"{part}.{kind}"] for part in parts])
            getattr(self.qkv, kind).data.copy_(fused)
            getattr(self.attended, kind).data.copy_(weights[f"{prefix}.attention.output.dense.{kind}"])
            getattr(self.attended_norm, kind).data.copy_(weights[f"{prefix}.attention.output.LayerNorm.{kind}"])
            getattr(self.up, kind).data.copy_(weights[f"{prefix}.intermediate.dense.{kind}"])
            getattr(self.down, kind).data.copy_(weights[f"{prefix}.output.dense.{kind}"])
            getattr(self.down_norm, kind).data.copy_(weights[f"{prefix}.output.LayerNorm.{kind}"])

    def forward(self, x, bias):
        batch, sequence, hidden = x.shape
        heads = SHAPE["num_attention_heads"]
        query, key, value = self.qkv(x).view(batch, sequence, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        x = self.attended_norm(self.attended(context.transpose(1, 2).reshape(batch, sequence, hidden)) + x)
        return self.down_norm(self.down(F.gelu(self.up(x))) + x)


class Encoder(torch.nn.Module):
    """From a request to embeddings, in the form that serves PyTorch best."""

    def __init__(self, weights):
        super().__init__()
        hidden = SHAPE["hidden_size"]
        positions = weights["embeddings.position_embeddings.weight"]
        # Every token is of type 0, so its embedding is folded into the positions'.
        positions = positions + weights["embeddings.token_type_embeddings.weight"][0]
        self.words = torch.nn.Parameter(weights["embeddings.word_embeddings.weight"].clone())
        self.positions = torch.nn.Parameter(positions)
        self.norm = torch.nn.LayerNorm(hidden, EPS)
        self.norm.weight.data.copy_(weights["embeddings.LayerNorm.weight"])
        self.norm.bias.data.copy_(weights["embeddings.LayerNorm.bias"])
        self.layers = torch.nn.ModuleList(
            Layer(weights, f"encoder.layer.{number}") for number in range(SHAPE["num_hidden_layers"])
        )
        self.requires_grad_(False)
        self.eval()

    def forward(self, request):
        """`request` is i32 [1 or 2, batch, sequence]: the ids, and the mask unless every length is full."""
        ids = request[0]
        x = self.norm(F.embedding(ids, self.words) + self.positions[: ids.shape[1]])
        bias = mask = None
        if request.shape[0] == 2:
            mask = request[1]
            # Once, not once a layer, as attention would make it of a boolean mask.
            unseen = (mask == 0)[:, None, None, :]
            bias = torch.zeros(unseen.shape, dtype=x.dtype, device=x.device).masked_fill(unseen, -math.inf)
            bias = bias.expand(-1, SHAPE["num_attention_heads"], ids.shape[1], -1)
        for layer in self.layers:
            x = layer(x, bias)
        x = x.float()
        # The sum's divisor does not matter to a vector that is normalised.
        pooled = x.mean(1) if mask is None else (x * mask[:, :, None]).sum(1)
        return F.normalize(pooled, dim=-1)


def write_safetensors(path, tensors, metadata=None):
    """Contiguous f32 and i32 tensors as a safetensors file; the package is not needed."""
    types = {torch.float32: "F32", torch.int32: "I32"}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = {key: str(value) for key, value in metadata.items()}
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))


def metadata():
    """What the file says of the model beside its tensors."""
    return {"architecture": "bert", "hidden_act": "gelu (erf)", "layer_norm_eps": EPS, **SHAPE}
