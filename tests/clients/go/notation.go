// The notation of types.json and the Go values that go-amqp makes of AMQP types. No connection here.
package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

type notation struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

type arrayNotation struct {
	Of     string   `json:"of"`
	Values []string `json:"values"`
}

type describedNotation struct {
	Descriptor notation `json:"descriptor"`
	Value      notation `json:"value"`
}

func note(kind string, value any) (notation, error) {
	content, err := json.Marshal(value)
	return notation{kind, content}, err
}

// native is the Go value that the library encodes as the noted one.
func (n notation) native() (any, error) {
	switch n.Type {
	case "null":
		return nil, nil
	case "boolean":
		return read[bool](n)
	case "list":
		items, err := read[[]notation](n)
		if err != nil {
			return nil, err
		}
		return natives(items)
	case "map":
		return n.nativeMap()
	case "array":
		return n.nativeArray()
	case "described":
		return n.nativeDescribed()
	}
	content, err := read[string](n)
	if err != nil {
		return nil, err
	}
	return nativeScalar(n.Type, content)
}

func read[T any](n notation) (T, error) {
	var value T
	return value, json.Unmarshal(n.Value, &value)
}

func natives(items []notation) ([]any, error) {
	values := make([]any, len(items))
	for i, each := range items {
		var err error
		if values[i], err = each.native(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func nativeScalar(kind, content string) (any, error) {
	unsigned := func(bits int) (uint64, error) { return strconv.ParseUint(content, 10, bits) }
	signed := func(bits int) (int64, error) { return strconv.ParseInt(content, 10, bits) }
	switch kind {
	case "ubyte":
		value, err := unsigned(8)
		return uint8(value), err
	case "ushort":
		value, err := unsigned(16)
		return uint16(value), err
	case "uint":
		value, err := unsigned(32)
		return uint32(value), err
	case "ulong":
		value, err := unsigned(64)
		return value, err
	case "byte":
		value, err := signed(8)
		return int8(value), err
	case "short":
		value, err := signed(16)
		return int16(value), err
	case "int":
		value, err := signed(32)
		return int32(value), err
	case "long":
		value, err := signed(64)
		return value, err
	case "float":
		bits, err := strconv.ParseUint(content, 16, 32)
		return math.Float32frombits(uint32(bits)), err
	case "double":
		bits, err := strconv.ParseUint(content, 16, 64)
		return math.Float64frombits(bits), err
	case "timestamp":
		value, err := signed(64)
		return time.UnixMilli(value), err
	case "uuid":
		octets, err := hex.DecodeString(strings.ReplaceAll(content, "-", ""))
		if err != nil || len(octets) != 16 {
			return nil, fmt.Errorf("no uuid: %s", content)
		}
		return amqp.UUID(octets), nil
	case "binary":
		return hex.DecodeString(content)
	case "string":
		return content, nil
	case "symbol":
		return amqp.Symbol(content), nil
	case "char", "decimal32", "decimal64", "decimal128":
		return nil, fmt.Errorf("the library has no %s", kind)
	}
	return nil, fmt.Errorf("unknown type %s", kind)
}

// A map's order is part of its value (§1.6.23), and the library encodes Go maps in a random one.
func (n notation) nativeMap() (any, error) {
	pairs, err := read[[][2]notation](n)
	if err != nil {
		return nil, err
	}
	if len(pairs) > 1 {
		return nil, errors.New("the library sends a map's pairs in a random order")
	}
	values := map[any]any{}
	for _, pair := range pairs {
		both, err := natives(pair[:])
		if err != nil {
			return nil, err
		}
		values[both[0]] = both[1]
	}
	return values, nil
}

func (n notation) nativeArray() (any, error) {
	array, err := read[arrayNotation](n)
	if err != nil {
		return nil, err
	}
	switch array.Of {
	case "int":
		return typed[int32](array)
	case "symbol":
		return typed[amqp.Symbol](array)
	}
	return nil, fmt.Errorf("no case of types.json has an array of %s", array.Of)
}

func typed[T any](array arrayNotation) ([]T, error) {
	values := make([]T, len(array.Values))
	for i, each := range array.Values {
		value, err := nativeScalar(array.Of, each)
		if err != nil {
			return nil, err
		}
		values[i] = value.(T)
	}
	return values, nil
}

// The library exports no described type but makes one of each link filter, with a ulong or a symbol for its
// descriptor.
func (n notation) nativeDescribed() (any, error) {
	described, err := read[describedNotation](n)
	if err != nil {
		return nil, err
	}
	value, err := described.Value.native()
	if err != nil {
		return nil, err
	}
	descriptor, err := described.Descriptor.native()
	if err != nil {
		return nil, err
	}
	switch descriptor := descriptor.(type) {
	case uint64:
		return onlyValue(amqp.NewLinkFilter("filter", descriptor, value)), nil
	case amqp.Symbol:
		return onlyValue(amqp.NewLinkFilter(string(descriptor), 0, value)), nil
	}
	return nil, errors.New("the library has no descriptor but ulong and symbol")
}

// onlyValue is the one value that `fill` puts into a map whose type the library doesn't export.
func onlyValue[M ~map[K]V, K comparable, V any](fill func(M)) V {
	filled := M{}
	fill(filled)
	for _, value := range filled {
		return value
	}
	panic("nothing was filled in")
}

// notationOf notes what the library decoded.
func notationOf(value any) (notation, error) {
	switch value := value.(type) {
	case nil:
		return note("null", nil)
	case bool:
		return note("boolean", value)
	case uint8:
		return note("ubyte", fmt.Sprint(value))
	case uint16:
		return note("ushort", fmt.Sprint(value))
	case uint32:
		return note("uint", fmt.Sprint(value))
	case uint64:
		return note("ulong", fmt.Sprint(value))
	case int8:
		return note("byte", fmt.Sprint(value))
	case int16:
		return note("short", fmt.Sprint(value))
	case int32:
		return note("int", fmt.Sprint(value))
	case int64:
		return note("long", fmt.Sprint(value))
	case float32:
		return note("float", fmt.Sprintf("%08x", math.Float32bits(value)))
	case float64:
		return note("double", fmt.Sprintf("%016x", math.Float64bits(value)))
	case time.Time:
		return note("timestamp", fmt.Sprint(value.UnixMilli()))
	case amqp.UUID:
		return note("uuid", fmt.Sprintf("%x-%x-%x-%x-%x", value[:4], value[4:6], value[6:8], value[8:10], value[10:]))
	case []byte:
		return note("binary", hex.EncodeToString(value))
	case string:
		return note("string", value)
	case []any:
		items, err := notations(value)
		if err != nil {
			return notation{}, err
		}
		return note("list", items)
	case map[any]any:
		return noteMap(value)
	case map[string]any:
		return noteMap(value)
	case []int32:
		return noteArray("int", value)
	case []amqp.Symbol:
		return noteArray("symbol", value)
	}
	described := onlyValue(amqp.NewLinkFilter("filter", 0, nil))
	if found, fits := asLike(value, *described); fits {
		return noteDescribed(found.Descriptor, found.Value)
	}
	return notation{}, fmt.Errorf("no notation of the library's %T", value)
}

// asLike asserts the type of `like`, which needs no name.
func asLike[T any](value any, like T) (T, bool) {
	found, fits := value.(T)
	return found, fits
}

func notations(values []any) ([]notation, error) {
	items := make([]notation, len(values))
	for i, each := range values {
		var err error
		if items[i], err = notationOf(each); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func noteMap[K comparable](values map[K]any) (notation, error) {
	if len(values) > 1 {
		return notation{}, errors.New("the library makes a Go map of it: the pairs' order is lost")
	}
	pairs := [][]notation{}
	for key, value := range values {
		pair, err := notations([]any{key, value})
		if err != nil {
			return notation{}, err
		}
		pairs = append(pairs, pair)
	}
	return note("map", pairs)
}

func noteArray[T any](kind string, values []T) (notation, error) {
	array := arrayNotation{Of: kind, Values: []string{}}
	for _, each := range values {
		array.Values = append(array.Values, fmt.Sprint(each))
	}
	return note("array", array)
}

func noteDescribed(descriptor, value any) (notation, error) {
	both, err := notations([]any{descriptor, value})
	if err != nil {
		return notation{}, err
	}
	return note("described", describedNotation{both[0], both[1]})
}
