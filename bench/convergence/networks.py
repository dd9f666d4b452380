"""The networks of torchps/worker/models, written once more for Python's torch."""

import math

import torch
from torch import nn
from torch.nn import functional


class ConvNet(nn.Module):

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def perceptron(features, hidden, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Block(nn.Module):

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x, future):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        score = query.matmul(key.transpose(-2, -1)) / math.sqrt(width // self.heads)
        mixed = score.masked_fill(future, -math.inf).softmax(-1).matmul(value)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class Transformer(nn.Module):

    def __init__(self, layers=2, heads=4, width=128, context=128, vocabulary=256):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, value in self.named_parameters():
            if value.dim() == 2:
                residual = name.endswith(("output.weight", "narrow.weight"))
                nn.init.normal_(value, 0, 0.02 / math.sqrt(2 * layers) if residual else 0.02)
            if name.endswith("bias"):
                nn.init.zeros_(value)

    def forward(self, tokens):
        length = tokens.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.embedding(tokens) + self.position.weight[:length]
        for block in self.blocks:
            x = block(x, future)
        return self.norm(x).matmul(self.embedding.weight.t())
