import os


def main():
    print("hello")


def helper(x):
    return x * 2
