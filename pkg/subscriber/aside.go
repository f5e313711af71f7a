package subscriber

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// aside keeps the stores whose parent the rank does not hold, until the parent
// comes. It is bounded in blocks.
type aside struct {
	stores map[protocol.SequenceHash][]*asideStore // by parent
	blocks int
	top    protocol.EventID // highest id of a store here
	asked  bool             // repair has been asked for them
}

type asideStore struct {
	item
	removed []protocol.SequenceHash // taken back while it waited
}

func (a *aside) empty() bool { return len(a.stores) == 0 }

// put keeps a store, false if there is no room.
func (a *aside) put(it item, maxBlocks int) bool {
	if a.blocks+len(it.Blocks) > maxBlocks {
		return false
	}
	if a.stores == nil {
		a.stores = map[protocol.SequenceHash][]*asideStore{}
	}
	a.stores[it.Parent] = append(a.stores[it.Parent], &asideStore{item: it})
	a.blocks += len(it.Blocks)
	a.top = max(a.top, it.ID)
	return true
}

// take removes and returns the stores below a parent, in their order.
func (a *aside) take(parent protocol.SequenceHash) []*asideStore {
	stores := a.stores[parent]
	if stores == nil {
		return nil
	}
	delete(a.stores, parent)
	for _, store := range stores {
		a.blocks -= len(store.Blocks)
	}
	if len(a.stores) == 0 {
		*a = aside{}
	}
	return stores
}

// remove notes that blocks which wait here are gone from a tier. A store all of
// whose blocks are gone is forgotten. What the blocks behind a removed one hold
// on to is decided by the index once the parent is there.
func (a *aside) remove(tier protocol.Tier, hashes []protocol.SequenceHash) {
	for parent, stores := range a.stores {
		stores = slices.DeleteFunc(stores, func(store *asideStore) bool {
			if store.Tier != tier {
				return false
			}
			for _, hash := range hashes {
				named := slices.ContainsFunc(store.Blocks, func(b protocol.Block) bool { return b.Sequence == hash })
				if named && !slices.Contains(store.removed, hash) {
					store.removed = append(store.removed, hash)
				}
			}
			if len(store.removed) < len(store.Blocks) {
				return false
			}
			a.blocks -= len(store.Blocks)
			return true
		})
		if len(stores) == 0 {
			delete(a.stores, parent)
		} else {
			a.stores[parent] = stores
		}
	}
	if len(a.stores) == 0 {
		*a = aside{}
	}
}

func (a *aside) clear() { *a = aside{} }
