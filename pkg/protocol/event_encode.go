package protocol

import (
	"encoding/binary"
	"strconv"
)

// AppendEventMessage appends a message to dst, in the contract's own format.
// msgpack is packed: 16 bytes a block, and 8 for each removal. An event that was
// refused, or is of no known kind, keeps its id alone. A note has to be one value
// in m.Encoding; it is put into enc.
func AppendEventMessage(dst []byte, m *EventMessage, enc Encoding) []byte {
	if enc == EncodingMsgpack {
		return appendPackedMessage(dst, m)
	}
	dst = append(dst, `{"v":1,"epoch":`...)
	dst = strconv.AppendUint(dst, uint64(m.Epoch), 10)
	if h := m.Snapshot; h != nil {
		dst = append(dst, `,"snapshot":`...)
		dst = appendJSONHeader(dst, h)
	}
	dst = append(dst, `,"events":[`...)
	for i := range m.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONEvent(dst, &m.Events[i], m.Snapshot != nil, m.Encoding)
	}
	return append(dst, "]}"...)
}

func appendJSONHeader(dst []byte, h *SnapshotHeader) []byte {
	field := func(name string, v uint64) {
		dst = append(dst, `,"`...)
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = strconv.AppendUint(dst, v, 10)
	}
	dst = append(dst, `{"id":`...)
	dst = appendJSONText(dst, []byte(h.ID))
	field("through", uint64(h.Through))
	field("seq", uint64(h.Seq))
	field("chunk", uint64(h.Chunk))
	field("chunks", uint64(h.Chunks))
	field("blocks", h.Blocks)
	field("checksum", h.Checksum)
	dst = append(dst, `,"exact":`...)
	dst = strconv.AppendBool(dst, !h.Inexact)
	return append(dst, '}')
}

// effect is the kind of an event as it is written.
func (e *Event) effect() EventKind {
	if e.Refusal != "" {
		return EventIgnored
	}
	return e.Kind
}

func appendJSONEvent(dst []byte, e *Event, snapshot bool, noteEncoding Encoding) []byte {
	dst = append(dst, '{')
	kind := e.effect()
	known := kind >= EventStored && kind <= EventLost
	if !snapshot {
		dst = append(dst, `"id":`...)
		dst = strconv.AppendUint(dst, uint64(e.ID), 10)
		if known {
			dst = append(dst, ',')
		}
	}
	switch kind {
	case EventStored:
		dst = append(dst, `"stored":{"parent":`...)
		if e.Root {
			dst = append(dst, "null"...)
		} else {
			dst = strconv.AppendUint(dst, uint64(e.Parent), 10)
		}
		dst = append(dst, `,"blocks":[`...)
		for i, b := range e.Blocks {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '[')
			dst = strconv.AppendUint(dst, uint64(b.Sequence), 10)
			dst = append(dst, ',')
			dst = strconv.AppendUint(dst, uint64(b.Hash), 10)
			dst = append(dst, ']')
		}
		dst = appendJSONTier(append(dst, ']'), e.Tier)
	case EventRemoved:
		dst = append(dst, `"removed":{"blocks":`...)
		dst = appendJSONUints(dst, e.Removed)
		dst = appendJSONTier(dst, e.Tier)
	case EventCleared:
		dst = append(dst, `"cleared":{}`...)
	case EventLost:
		dst = append(dst, `"lost":{}`...)
	case EventNote:
		dst = append(dst, `"note":`...)
		dst = appendTranscoded(dst, e.Note, noteEncoding, EncodingJSON)
	}
	return append(dst, '}')
}

func appendJSONTier(dst []byte, t Tier) []byte {
	dst = append(dst, `,"tier":"`...)
	dst = append(dst, t.String()...)
	return append(dst, `"}`...)
}

// appendJSONUints appends a list of numbers.
func appendJSONUints[T integer](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(v), 10)
	}
	return append(dst, ']')
}

func appendPackedMessage(dst []byte, m *EventMessage) []byte {
	if m.Snapshot == nil {
		dst = appendMapHeader(dst, 3)
	} else {
		dst = appendMapHeader(dst, 4)
	}
	dst = appendUint(appendText(dst, "v"), messageVersion)
	dst = appendUint(appendText(dst, "epoch"), uint64(m.Epoch))
	if h := m.Snapshot; h != nil {
		dst = appendPackedHeader(appendText(dst, "snapshot"), h)
	}
	dst = appendListHeader(appendText(dst, "events"), len(m.Events))
	for i := range m.Events {
		dst = appendPackedEvent(dst, &m.Events[i], m.Snapshot != nil, m.Encoding)
	}
	return dst
}

func appendPackedHeader(dst []byte, h *SnapshotHeader) []byte {
	dst = appendMapHeader(dst, 8)
	dst = appendText(appendText(dst, "id"), h.ID)
	dst = appendUint(appendText(dst, "through"), uint64(h.Through))
	dst = appendUint(appendText(dst, "seq"), uint64(h.Seq))
	dst = appendUint(appendText(dst, "chunk"), uint64(h.Chunk))
	dst = appendUint(appendText(dst, "chunks"), uint64(h.Chunks))
	dst = appendUint(appendText(dst, "blocks"), h.Blocks)
	dst = appendUint(appendText(dst, "checksum"), h.Checksum)
	return appendBool(appendText(dst, "exact"), !h.Inexact)
}

func appendPackedEvent(dst []byte, e *Event, snapshot bool, noteEncoding Encoding) []byte {
	kind := e.effect()
	fields := 0
	if !snapshot {
		fields++
	}
	if kind >= EventStored && kind <= EventLost {
		fields++
	}
	dst = appendMapHeader(dst, fields)
	if !snapshot {
		dst = appendUint(appendText(dst, "id"), uint64(e.ID))
	}
	switch kind {
	case EventStored:
		dst = appendPackedStore(appendText(dst, "stored"), e)
	case EventRemoved:
		dst = appendText(dst, "removed")
		dst = appendPackedTier(dst, 1, e.Tier)
		dst = appendPackedHashes(appendText(dst, "blocks"), e.Removed)
	case EventCleared:
		dst = appendMapHeader(appendText(dst, "cleared"), 0)
	case EventLost:
		dst = appendMapHeader(appendText(dst, "lost"), 0)
	case EventNote:
		dst = appendTranscoded(appendText(dst, "note"), e.Note, noteEncoding, EncodingMsgpack)
	}
	return dst
}

func appendPackedStore(dst []byte, e *Event) []byte {
	dst = appendPackedTier(dst, 3, e.Tier)
	dst = appendText(dst, "parent")
	if e.Root {
		dst = append(dst, msgpackNil)
	} else {
		dst = appendUint(dst, uint64(e.Parent))
	}
	dst = appendBinHeader(appendText(dst, "seq"), 8*len(e.Blocks))
	for _, b := range e.Blocks {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Sequence))
	}
	dst = appendBinHeader(appendText(dst, "local"), 8*len(e.Blocks))
	for _, b := range e.Blocks {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Hash))
	}
	return dst
}

// appendPackedTier appends the header of a map of some more fields, and the tier
// where it is not the default.
func appendPackedTier(dst []byte, fields int, t Tier) []byte {
	if t == TierDevice {
		return appendMapHeader(dst, fields)
	}
	dst = appendMapHeader(dst, fields+1)
	return appendText(appendText(dst, "tier"), t.String())
}

func appendPackedHashes[T ~uint64](dst []byte, list []T) []byte {
	dst = appendBinHeader(dst, 8*len(list))
	for _, h := range list {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(h))
	}
	return dst
}
